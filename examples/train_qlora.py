"""QLoRA of an 8B model with TRL: what people write, and what vramwise reads without running it.

vramwise predict examples/train_qlora.py --gpu rtx-4090
vramwise predict examples/train_qlora.py --gpu rtx-4090 --args "--batch-size 8"
"""

import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="Qwen/Qwen3-8B")
parser.add_argument("--batch-size", type=int, default=2)
args = parser.parse_args()

model = AutoModelForCausalLM.from_pretrained(
    args.model,
    dtype=torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16,
    quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
)
trainer = SFTTrainer(
    model,
    args=SFTConfig(
        output_dir="out",
        per_device_train_batch_size=args.batch_size,
        gradient_accumulation_steps=8,
        max_length=2048,
        packing=True,
        optim="paged_adamw_8bit",
        gradient_checkpointing=True,
    ),
    train_dataset=load_dataset("trl-lib/Capybara", split="train"),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"),
)
trainer.train()
