"""Draws cases for `axolotl_runs.py` by chance: models, methods, kernels, losses, checkpointing, evaluation, pairs.

    python draw_cases.py SEED COUNT [VERSION ...] > cases.json

Every feature is drawn at least three times where COUNT allows; each version gets its share of the cases. Nobody chooses
a case because of what it would show.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

VERSIONS = ("0.19.0", "0.21.0")
LIGER = {
    "plugins": ["axolotl.integrations.liger.LigerPlugin"],
    "liger_rope": True,
    "liger_rms_norm": True,
    "liger_glu_activation": True,
    "liger_fused_linear_cross_entropy": True,
}
LORA = {"adapter": "lora", "lora_alpha": 32, "lora_target_linear": True}
# name: the keys it brings; each is the heart of at least three cases
FEATURES: dict[str, dict[str, Any]] = {
    "lora": {**LORA},
    "kernels_off": {**LORA, "lora_mlp_kernel": False, "lora_qkv_kernel": False, "lora_o_kernel": False},
    "kernels_on": {**LORA, "lora_mlp_kernel": True, "lora_qkv_kernel": True, "lora_o_kernel": True},
    "dropout": {**LORA, "lora_dropout": 0.05},
    "dora": {**LORA, "peft_use_dora": True},
    "targets": {"adapter": "lora", "lora_alpha": 32, "lora_target_modules": ["q_proj", "v_proj", "down_proj"]},
    "qlora": {**LORA, "adapter": "qlora", "load_in_4bit": True},
    "lora8bit": {**LORA, "load_in_8bit": True},
    "chunked": {"chunked_cross_entropy": True},
    "liger": {**LORA, **LIGER},
    "act_offload": {**LORA, "gradient_checkpointing": True, "activation_offloading": True},
    "gc_offload": {**LORA, "gradient_checkpointing": "offload"},
    "unfrozen": {"gradient_checkpointing": True},
    "evaluation": {**LORA, "val_set_size": 0.1, "eval_steps": 2},
    "full": {},
    "dpo": {"rl": "dpo"},
    "ipo": {"rl": "ipo"},
    "kto": {"rl": "kto", "remove_unused_columns": False},
    "orpo": {"rl": "orpo", "remove_unused_columns": False},
    "simpo": {"rl": "simpo", "rl_beta": 0.1, "cpo_alpha": 1.0, "simpo_gamma": 0.5},
    "reward": {"reward_model": True},
    "grpo": {"rl": "grpo", "remove_unused_columns": False},
}
DENSE = ("llama1b", "llama8b8", "qwen25_05b", "qwen3_4b9", "gemma3_1b", "mistral7b8")
SMALL = ("llama1b", "qwen25_05b", "gemma3_1b", "qwen3_4b9")
PREFERENCE = ("dpo", "ipo", "kto", "orpo", "simpo", "reward", "grpo")
LAYERS = {"llama1b": 16, "qwen25_05b": 24, "gemma3_1b": 26, "qwen3_4b9": 9, "llama8b8": 8, "mistral7b8": 8}


def draw(feature: str, rng: random.Random) -> dict[str, Any]:
    """One case with this feature; everything else by chance."""
    keys = dict(FEATURES[feature])
    full = "adapter" not in keys and feature not in PREFERENCE
    model = rng.choice(SMALL if full or feature in PREFERENCE else DENSE)
    if feature in PREFERENCE:
        _draw_preference(feature, keys, rng)
    else:
        _draw_batches(keys, rng)
    if "adapter" in keys:
        keys["lora_r"] = rng.choice([8, 16, 32, 64])
        keys.setdefault("lora_dropout", 0.0)
    if feature == "unfrozen":
        first = rng.randint(LAYERS[model] // 2, LAYERS[model] - 2)
        keys["unfrozen_parameters"] = [f"model.layers.{number}." for number in range(first, LAYERS[model])]
    if feature == "evaluation":
        keys["eval_batch_size"] = rng.choice([1, 2, 4, 8])
    keys.setdefault("gradient_checkpointing", rng.random() < 0.6)
    optimizers = ["adamw_torch_fused", "adamw_torch_fused", "adamw_8bit", "paged_adamw_8bit", "adafactor"]
    keys["optimizer"] = rng.choice(optimizers)
    alloc = rng.choice(["expandable_segments:True", "expandable_segments:True", ""])
    return {"model": model, "config": keys, "alloc": alloc}


def _draw_batches(keys: dict[str, Any], rng: random.Random) -> None:
    kind = rng.choice(["pack", "pack", "pad", "vary"])
    keys["attn_implementation"] = rng.choice(["flash_attention_2", "sdpa"])
    if kind == "pack":
        keys |= {"sample_packing": True, "pad_to_sequence_len": True}
        if "val_set_size" in keys:
            keys["eval_sample_packing"] = rng.random() < 0.5
    if kind == "pad":
        keys["pad_to_sequence_len"] = True
    keys["sequence_len"] = rng.choice([1024, 2048, 2048, 4096])
    keys["micro_batch_size"] = rng.choice([1, 2, 2, 4]) if keys["sequence_len"] < 4096 else rng.choice([1, 2])
    keys["gradient_accumulation_steps"] = rng.choice([1, 1, 2, 4])


def _draw_preference(feature: str, keys: dict[str, Any], rng: random.Random) -> None:
    if rng.random() < 0.6:
        keys |= {**LORA}
    keys["micro_batch_size"] = rng.choice([2, 4]) if feature == "kto" else rng.choice([1, 2])
    if feature == "grpo":
        keys["micro_batch_size"] = 4
        keys["trl"] = {
            "use_vllm": False,
            "reward_funcs": ["axolotl_rewards.length"],
            "num_generations": 4,
            "max_completion_length": rng.choice([32, 64, 96]),
            "beta": rng.choice([0.0, 0.04]),
        }


def main() -> None:
    """Print the cases."""
    seed, count, versions = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or VERSIONS
    rng = random.Random(seed)
    cases: dict[str, Any] = {}
    for number in range(count):
        feature = list(FEATURES)[number % len(FEATURES)]
        # the second round begins with another version, so that each feature meets both
        version = versions[(number + number // len(FEATURES)) % len(versions)]
        case = draw(feature, rng)
        name = f"{number:02d}_{feature}_{case['model']}@{version.split('.')[1]}"
        cases[name] = {**case, "axolotl": version}
    json.dump(cases, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
