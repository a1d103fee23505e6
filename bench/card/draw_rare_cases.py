"""Draws cases for `axolotl_runs.py` by chance, of what was off once: offloaded checkpoints, SimPO, packed Gemma 3 under
SDPA, mixtures of experts, 8-bit bases, latent attention, OLMo 3, other optimizers, DoRA on 4 bits, evaluation.

    python draw_rare_cases.py SEED ROUNDS > cases.json

Each round has every feature once, with Axolotl 0.21; everything else is left to chance.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

from draw_cases import DENSE, LIGER, LORA, SMALL, _draw_batches, _draw_preference

KERNELS_OFF = {"lora_mlp_kernel": False, "lora_qkv_kernel": False, "lora_o_kernel": False}
QLORA = {**LORA, "adapter": "qlora", "load_in_4bit": True}
ATTENTION = {"adapter": "lora", "lora_alpha": 32, "lora_target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}
PAIRED = {"simpo": {"rl_beta": 0.1, "cpo_alpha": 1.0, "simpo_gamma": 0.5}, "kto": {"remove_unused_columns": False}}
PAIRED |= {"dpo": {}, "orpo": {"remove_unused_columns": False}}
OPTIMIZERS = ("adamw_torch_fused", "adamw_torch_fused", "adamw_8bit", "paged_adamw_8bit", "adafactor")
RARE_OPTIMIZERS = ("adamw_torch", "lion_8bit", "ademamix_8bit", "schedule_free_adamw", "muon", "sgd", "rmsprop")
MIXTURES = ("olmoe4", "qwen3moe4")
# feature: its models and the keys it brings
FEATURES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "offload_full": (SMALL, {"gradient_checkpointing": "offload"}),
    "offload_full_liger": (("qwen25_05b", "llama1b", "qwen3_4b9"), {"gradient_checkpointing": "offload", **LIGER}),
    "hidden_states": (SMALL, {"gradient_checkpointing": True, "activation_offloading": "hidden_states"}),
    "gemma3_pack_sdpa": (("gemma3_1b",), {**LORA, "sample_packing": True}),
    "moe_lora": (MIXTURES, {**ATTENTION, **KERNELS_OFF}),
    "moe_full": (MIXTURES, {}),
    "lora8bit": (DENSE, {**LORA, "load_in_8bit": True}),
    "lora8bit_outliers": (("llama8b8_outliers",), {**LORA, "load_in_8bit": True, "gradient_checkpointing": True}),
    "latent_qlora": (("glm47_flash6",), {**ATTENTION, **KERNELS_OFF, "adapter": "qlora", "load_in_4bit": True}),
    "latent_lora": (("glm47_flash3",), {**ATTENTION, **KERNELS_OFF}),
    "olmo3": (("olmo3_7b6",), {**LORA, **KERNELS_OFF}),
    "squared_relu": (("afm_4b6",), {**LORA}),
    "dora_qlora": (DENSE, {**QLORA, "peft_use_dora": True}),
    "modules_saved": (SMALL, {**LORA, "lora_modules_to_save": ["embed_tokens", "lm_head"]}),
    "optimizer_full": (SMALL, {}),
    "optimizer_lora": (DENSE, {**LORA}),
    "evaluation": (DENSE, {**LORA, "val_set_size": 0.1, "eval_steps": 2}),
    "liger_full": (("qwen25_05b", "llama1b", "gemma3_1b"), {**LIGER}),
    "simpo": (SMALL, {}),
    "dpo": (SMALL, {}),
    "kto": (SMALL, {}),
    "orpo": (SMALL, {}),
}


def draw(feature: str, rng: random.Random) -> dict[str, Any]:
    """One case with this feature."""
    models, own = FEATURES[feature]
    keys = dict(own)
    if feature in PAIRED:
        keys |= {"rl": feature, **PAIRED[feature]}
        _draw_preference(feature, keys, rng)
        if "adapter" in keys and rng.random() < 0.3:
            keys |= QLORA
    else:
        packed = keys.get("sample_packing")
        _draw_batches(keys, rng)
        if packed:
            keys |= {"attn_implementation": "sdpa", "pad_to_sequence_len": True}
    if "adapter" in keys:
        keys |= {"lora_r": rng.choice([8, 16, 32, 64]), "lora_dropout": rng.choice([0.0, 0.0, 0.05])}
    if feature == "evaluation":
        keys["eval_batch_size"] = rng.choice([1, 2, 4, 8])
    if keys.setdefault("gradient_checkpointing", rng.random() < 0.6) is True and rng.random() < 0.3:
        keys["gradient_checkpointing_kwargs"] = {"use_reentrant": True}
    keys["optimizer"] = rng.choice(RARE_OPTIMIZERS if feature.startswith("optimizer") else OPTIMIZERS)
    alloc = rng.choice(["expandable_segments:True", "expandable_segments:True", ""])
    return {"model": rng.choice(models), "config": keys, "alloc": alloc}


def main() -> None:
    """Print the cases."""
    seed, rounds = map(int, sys.argv[1:3])
    rng = random.Random(seed)
    cases: dict[str, Any] = {}
    for number, feature in enumerate([*FEATURES] * rounds):
        case = draw(feature, rng)
        name = f"o{number:02d}_{feature}_{case['model']}"
        cases[name] = {**case, "axolotl": "0.21.0", "site": "axolotl-0.21"}
    print(json.dumps(cases, indent=1))


if __name__ == "__main__":
    main()
