"""Draws runs of TRL and LLaMA-Factory by chance: `python trainer_cases.py SEED TRL LLAMAFACTORY > cases.json`.

So many of each. Methods, models, lengths, batches, packing, evaluation, quantisation, kernels, and now and then a rarer
option. Nobody chooses a case because of what it would show. LLaMA-Factory runs with the newest transformers that it
allows, where flash attention is broken, or with 4.57.
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
STAGES = ("sft", "sft", "dpo", "sft", "pt", "dpo", "kto", "sft", "rm", "sft")


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
    _now_and_then(keys, TRL_RARE["all"] + TRL_RARE[method] + (TRL_RARE["peft"] if tuned != "full" else ()), rng)
    if keys.get("packing") or keys.get("padding_free"):
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
    """One run of `llamafactory-cli train`, with flash attention or without."""
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
    _now_and_then(keys, FACTORY_RARE["all"] + FACTORY_RARE[stage] + FACTORY_RARE[tuned], rng)
    if keys["flash_attn"] == "fa2" and keys.get("neat_packing"):
        keys["neat_packing"] = False
    if rng.random() < 0.25 and stage in ("sft", "pt"):
        keys["enable_liger_kernel"] = True
    keys |= _batches(stage, rng)
    keys["optim"] = rng.choice(["adamw_torch", *OPTIMIZERS])
    if rng.random() < 0.4 and stage in ("sft", "dpo", "pt"):
        keys |= {"val_size": 0.1, "eval_strategy": "steps", "eval_steps": 3}
        if rng.random() < 0.5:
            keys["per_device_eval_batch_size"] = rng.choice([1, 2, 4])
    return keys


Rare = tuple[tuple[float, dict[str, Any]], ...]
TRL_RARE: dict[str, Rare] = {
    "all": (
        (0.12, {"use_liger_kernel": True}),
        (0.1, {"pad_to_multiple_of": 64}),
        (0.06, {"fp16": True, "bf16": False}),
    ),
    "peft": ((0.08, {"use_dora": True}), (0.1, {"use_rslora": True}), (0.06, {"lora_modules_to_save": ["lm_head"]})),
    "sft": (
        *((0.2, {"completion_only_loss": False}), (0.08, {"activation_offloading": True})),
        *((0.08, {"padding_free": True}), (0.1, {"loss_type": "nll"})),
    ),
    "dpo": (
        *((0.2, {"precompute_ref_log_probs": True}), (0.15, {"loss_type": ["ipo"]}), (0.15, {"max_length": 512})),
        *((0.1, {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.5]}), (0.1, {"padding_free": True})),
    ),
    "kto": ((0.2, {"precompute_ref_log_probs": True}), (0.2, {"loss_type": "apo_zero_unpaired"})),
    "reward": ((0.3, {"center_rewards_coefficient": 0.01}), (0.2, {"max_length": 512})),
}
_ADAPTED: Rare = ((0.1, {"use_dora": True}), (0.1, {"use_rslora": True}), (0.1, {"loraplus_lr_ratio": 16.0}))
FACTORY_RARE: dict[str, Rare] = {
    "all": ((0.08, {"upcast_layernorm": True}), (0.1, {"upcast_lmhead_output": True})),
    "lora": (*_ADAPTED, (0.08, {"additional_target": "embed_tokens,lm_head"}), (0.12, {"quantization_bit": 8})),
    "qlora": _ADAPTED,
    "full": ((0.25, {"finetuning_type": "freeze", "freeze_trainable_layers": 2}),),
    "sft": ((0.15, {"train_on_prompt": True}), (0.08, {"use_dft_loss": True})),
    "pt": (),
    "dpo": ((0.2, {"pref_loss": "orpo"}), (0.2, {"pref_loss": "simpo"}), (0.2, {"pref_ftx": 0.1})),
    "kto": (),
    "rm": (),
}


def _now_and_then(keys: dict[str, Any], rare: Rare, rng: random.Random) -> None:
    for chance, options in rare:
        if rng.random() < chance:
            keys |= options


def _batches(method: str, rng: random.Random) -> dict[str, Any]:
    sizes = [1, 2, 4, 8] if method in ("sft", "pt") else [2, 4]
    return {
        "per_device_train_batch_size": rng.choice(sizes),
        "gradient_accumulation_steps": rng.choice([1, 1, 2, 4]),
    }


def main() -> None:
    """Print the cases."""
    seed, *counts = map(int, sys.argv[1:4])
    rng = random.Random(seed)
    kinds = (("trl", TRL_METHODS, trl_case), ("llamafactory", STAGES, llamafactory_case))
    cases: dict[str, Any] = {}
    for (trainer, methods, draw), count in zip(kinds, counts, strict=True):
        for number in range(count):
            method = methods[number % len(methods)]
            tuned = rng.choice(["lora", "lora", "qlora", "full"])
            model = rng.choice(SMALL if tuned == "full" or method not in ("sft", "pt") else MODELS)
            case = {"trainer": trainer, "method": method, "model": model, "config": draw(method, tuned, rng)}
            case["alloc"] = rng.choice(["", "", "expandable_segments:True"])
            flash = case["config"].get("flash_attn") == "fa2"
            if trainer == "llamafactory" and (rng.random() < 0.3 or flash):
                case["site"] = "llamafactory457"
            cases[f"{trainer}{seed}{number:02d}_{method}_{tuned}_{model}"] = case
    print(json.dumps(cases, indent=1))


if __name__ == "__main__":
    main()
