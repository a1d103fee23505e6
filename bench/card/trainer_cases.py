"""Draws runs of TRL and LLaMA-Factory by chance: `python trainer_cases.py SEED COUNT > cases.json`, COUNT of each.

Methods, models, lengths, batches, packing, evaluation, quantisation, kernels. Nobody chooses a case because of what it
would show.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

MODELS = ("llama1b", "qwen25_05b", "qwen3_4b9", "gemma3_1b", "mistral7b8", "llama8b8")
SMALL = ("llama1b", "qwen25_05b", "qwen3_4b9", "gemma3_1b")
TRL_METHODS = ("sft", "sft", "sft", "dpo", "sft", "kto", "sft", "sft", "reward", "sft")
OPTIMIZERS = ("adamw_torch_fused", "adamw_8bit", "paged_adamw_8bit")
STAGES = ("sft", "sft", "dpo", "sft", "pt", "sft", "kto", "sft", "rm", "sft")


def trl_case(method: str, tuned: str, rng: random.Random) -> dict[str, Any]:
    """One run of `trl METHOD --config`."""
    keys: dict[str, Any] = {}
    if tuned != "full":
        keys |= {"use_peft": True, "lora_r": rng.choice([8, 16, 64])}
        if rng.random() < 0.6:
            keys["lora_target_modules"] = "all-linear"
        if method == "reward":
            keys["lora_task_type"] = "SEQ_CLS"
    if tuned == "qlora":
        keys |= {"load_in_4bit": True, "use_bnb_nested_quant": rng.random() < 0.5}
    if rng.random() < 0.6:
        keys["dtype"] = "bfloat16"
    if rng.random() < 0.3:
        keys["gradient_checkpointing"] = False
    if method == "sft":
        keys["max_length"] = rng.choice([512, 1024, 2048, 2048])
        keys["packing"] = rng.random() < 0.35
    keys["attn_implementation"] = rng.choice(["sdpa", "flash_attention_2"])
    if keys.get("packing"):
        keys["attn_implementation"] = "flash_attention_2"
    keys |= _batches(method, rng)
    keys["optim"] = rng.choice(
        ["adamw_torch_fused", "adamw_torch_fused", "adamw_8bit", "paged_adamw_8bit", "adafactor"]
    )
    if rng.random() < 0.4:
        keys |= {"eval_strategy": "steps", "eval_steps": 3}
        if rng.random() < 0.5:
            keys["per_device_eval_batch_size"] = rng.choice([1, 2, 4])
    return keys


def llamafactory_case(stage: str, tuned: str, rng: random.Random) -> dict[str, Any]:
    """One run of `llamafactory-cli train`."""
    keys: dict[str, Any] = {"finetuning_type": "full" if tuned == "full" else "lora", "bf16": True}
    if tuned != "full":
        keys |= {"lora_rank": rng.choice([8, 16, 64]), "lora_target": "all"}
    if tuned == "qlora":
        keys |= {"quantization_bit": 4, "double_quantization": rng.random() < 0.5}
    if tuned == "full" and rng.random() < 0.4:
        keys |= {"pure_bf16": True}
        del keys["bf16"]
    if rng.random() < 0.3:
        keys["disable_gradient_checkpointing"] = True
    if rng.random() < 0.2 and not keys.get("disable_gradient_checkpointing"):
        keys["use_unsloth_gc"] = True
    keys["cutoff_len"] = rng.choice([512, 1024, 2048, 2048])
    if stage == "sft" and rng.random() < 0.3:
        keys["packing"] = True
        keys["neat_packing"] = rng.random() < 0.5
    keys["flash_attn"] = rng.choice(["sdpa", "fa2", "auto"])
    if rng.random() < 0.25 and stage in ("sft", "pt"):
        keys["enable_liger_kernel"] = True
    keys |= _batches(stage, rng)
    keys["optim"] = rng.choice(["adamw_torch", *OPTIMIZERS])
    if rng.random() < 0.4 and stage in ("sft", "dpo", "pt"):
        keys |= {"val_size": 0.1, "eval_strategy": "steps", "eval_steps": 3}
        if rng.random() < 0.5:
            keys["per_device_eval_batch_size"] = rng.choice([1, 2, 4])
    return keys


def _batches(method: str, rng: random.Random) -> dict[str, Any]:
    sizes = [1, 2, 4, 8] if method in ("sft", "pt") else [2, 4]
    return {
        "per_device_train_batch_size": rng.choice(sizes),
        "gradient_accumulation_steps": rng.choice([1, 1, 2, 4]),
    }


def main() -> None:
    """Print the cases."""
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(seed)
    cases: dict[str, Any] = {}
    for number in range(count):
        for trainer, methods in (("trl", TRL_METHODS), ("llamafactory", STAGES)):
            method = methods[number % len(methods)]
            tuned = rng.choice(["lora", "lora", "qlora", "full"])
            model = rng.choice(SMALL if tuned == "full" or method not in ("sft", "pt") else MODELS)
            draw = trl_case if trainer == "trl" else llamafactory_case
            alloc = rng.choice(["", "", "expandable_segments:True"])
            name = f"{trainer}{number:02d}_{method}_{tuned}_{model}"
            config = draw(method, tuned, rng)
            cases[name] = {"trainer": trainer, "method": method, "model": model, "config": config, "alloc": alloc}
    print(json.dumps(cases, indent=1))


if __name__ == "__main__":
    main()
