"""Draws training scripts whose steps are to be timed: `python script_speed_cases.py SEED COUNT [WORKLOAD ...]`.

Each workload is one training in several variants that give the same result, drawn by chance: a full fine-tune and a
LoRA with transformers' Trainer, a packed full fine-tune with TRL. A case holds the script that runs and is predicted.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

OPTIMIZERS = ("adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "adamw_8bit")
# model, whether LoRA, whether TRL packs the rows, tokens of a row, rows of a step
WORKLOADS: dict[str, tuple[str, bool, bool, int, int]] = {
    "full": ("qwen25_05b", False, False, 1024, 8),
    "lora": ("qwen25_15b", True, False, 1024, 4),
    "packed": ("llama1b", False, True, 2048, 8),
    "full-short": ("llama1b", False, False, 512, 16),
    "lora-long": ("tinyllama", True, False, 2048, 4),
    "packed-qwen": ("qwen25_05b", False, True, 1024, 16),
}
STEPS = 7
HEAD = """import torch
from timed_data import rows
from transformers import AutoModelForCausalLM, AutoTokenizer
"""
LOAD = 'model = AutoModelForCausalLM.from_pretrained("{model}", dtype=torch.bfloat16, attn_implementation="sdpa")\n'
LORA = """from peft import LoraConfig, get_peft_model
{load}model = get_peft_model(
    model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
)
"""
PLAIN = """from transformers import Trainer, TrainingArguments, default_data_collator
args = TrainingArguments({arguments})
trainer = Trainer(model=model, args=args, train_dataset=rows({length}), data_collator=default_data_collator)
trainer.train()
"""
PACKED = """from trl import SFTConfig, SFTTrainer
tokenizer = AutoTokenizer.from_pretrained("{model}")
args = SFTConfig({arguments})
trainer = SFTTrainer(model=model, args=args, train_dataset=rows({length}), processing_class=tokenizer)
trainer.train()
"""


def variant(packed: bool, samples: int, rng: random.Random) -> dict[str, Any]:
    """Arguments that leave the result of a training as it is, by chance."""
    micro = rng.choice([size for size in (1, 2, 4, 8, 16) if samples % size == 0])
    keys: dict[str, Any] = {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": samples // micro,
        "gradient_checkpointing": rng.random() < 0.5,
        "use_liger_kernel": rng.random() < 0.4,
        "optim": rng.choice(OPTIMIZERS),
    }
    if packed and keys["gradient_checkpointing"] and rng.random() < 0.3:
        keys["activation_offloading"] = True
    return keys


def script(workload: str, keys: dict[str, Any]) -> str:
    """The text that runs."""
    model, lora, packed, length, _ = WORKLOADS[workload]
    common = {"output_dir": "out", "max_steps": STEPS, "bf16": True, "learning_rate": 1e-5, "logging_steps": 1}
    common |= {"save_strategy": "no", "report_to": "none", "seed": 11, **keys}
    if packed:
        common |= {"max_length": length, "packing": True, "packing_strategy": "wrapped"}
    arguments = "\n    " + "\n    ".join(f"{name}={value!r}," for name, value in common.items()) + "\n"
    load = LOAD.format(model=model)
    body = (PACKED if packed else PLAIN).format(model=model, arguments=arguments, length=length)
    return HEAD + (LORA.format(load=load) if lora else load) + body


def cases(seed: int, count: int, chosen: list[str]) -> dict[str, Any]:
    """So many variants of each workload, no two alike."""
    rng = random.Random(seed)
    found: dict[str, Any] = {}
    for workload in chosen:
        model, _, packed, length, samples = WORKLOADS[workload]
        seen: list[dict[str, Any]] = []
        while len(seen) < count:
            keys = variant(packed, samples, rng)
            if keys in seen:
                continue
            seen.append(keys)
            case = {"workload": workload, "model": model, "length": length, "keys": keys}
            found[f"{workload}{len(seen)}"] = {**case, "script": script(workload, keys)}
    # one of each workload after the other: what is cut off at the end is the same of all
    order = sorted(found, key=lambda name: int(name.lstrip("abcdefghijklmnopqrstuvwxyz-")))
    return {name: found[name] for name in order}


if __name__ == "__main__":
    print(json.dumps(cases(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(WORKLOADS)[:3]), indent=1))
