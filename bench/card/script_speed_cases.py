"""Training scripts whose steps are to be timed: transformers' Trainer, or TRL with packed rows.

A workload is one training in several variants that give the same result. `draw_speed.py` draws both.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

OPTIMIZERS = ("adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "adamw_8bit")
STEPS = 9


@dataclass(frozen=True, slots=True)
class Workload:
    """What the variants have in common. `dtype`: of the loaded weights. `packed`: TRL packs the rows."""

    model: str
    dtype: str
    lora: bool
    packed: bool
    length: int
    samples: int


HEAD = """import torch
from timed_data import rows
from transformers import AutoModelForCausalLM, AutoTokenizer
"""
LOAD = 'model = AutoModelForCausalLM.from_pretrained("{model}", dtype=torch.{dtype}, attn_implementation="sdpa")\n'
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


def script(workload: Workload, keys: dict[str, Any]) -> str:
    """The text that runs."""
    common = {"output_dir": "out", "max_steps": STEPS, "bf16": True, "learning_rate": 1e-5, "logging_steps": 1}
    common |= {"save_strategy": "no", "report_to": "none", "seed": 11, **keys}
    if workload.packed:
        common |= {"max_length": workload.length, "packing": True, "packing_strategy": "wrapped"}
    arguments = "\n    " + "\n    ".join(f"{name}={value!r}," for name, value in common.items()) + "\n"
    load = LOAD.format(model=workload.model, dtype=workload.dtype)
    text = PACKED if workload.packed else PLAIN
    body = text.format(model=workload.model, arguments=arguments, length=workload.length)
    return HEAD + (LORA.format(load=load) if workload.lora else load) + body


def case(name: str, workload: Workload, keys: dict[str, Any]) -> dict[str, Any]:
    """What runs and is predicted."""
    told = {"workload": name, "model": workload.model, "length": workload.length, "keys": keys}
    return {**told, "script": script(workload, keys)}
