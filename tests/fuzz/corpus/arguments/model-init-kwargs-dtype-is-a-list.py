import argparse, os, sys, torch
from dataclasses import dataclass, field
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=2)
flags = parser.parse_args()
@dataclass
class Mine:
    length: int = field(default=256)
mine = Mine()
kwargs = dict(logging_steps=1)
def size_of(one, two=2):
    return one // two
def endless(one):
    return endless(one)
more = {'torch_dtype': [1, 2, 3]}
more.update(kwargs)
quant = BitsAndBytesConfig(load_in_4bit=True)
model = AutoModelForCausalLM.from_pretrained("model", quantization_config=quant)
peft_config = LoraConfig(r=8)
args = SFTConfig(output_dir="out", per_device_train_batch_size=2, **more, **kwargs)
trainer = SFTTrainer(model=model, args=args, train_dataset=[], peft_config=peft_config)
trainer.train()
