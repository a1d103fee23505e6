"""Draws Axolotl cases whose steps are to be timed: `python speed_cases.py calibration|workloads SEED > cases.json`.

calibration: models, methods, kernels, batches by chance. workloads: a few trainings, each in ten variants that give the
same result, by chance too. Nobody chooses a case because of what it would show. `draw_speed.py` draws the workloads as
well, and scripts beside them.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

LORA = {"adapter": "lora", "lora_r": 16, "lora_alpha": 32, "lora_target_linear": True, "lora_dropout": 0.0}
METHODS: dict[str, dict[str, Any]] = {
    "lora": LORA,
    "qlora": {**LORA, "adapter": "qlora", "load_in_4bit": True},
    "lora8": {**LORA, "load_in_8bit": True},
    "full": {},
}
PLUGIN = {"plugins": ["axolotl.integrations.liger.LigerPlugin"]}
LOSSES: dict[str, dict[str, Any]] = {
    "stock": {},
    "fused": {**PLUGIN, "liger_fused_linear_cross_entropy": True},
    "chunked": {"chunked_cross_entropy": True},
}
OTHER_LIGER = {**PLUGIN, "liger_rope": True, "liger_rms_norm": True, "liger_glu_activation": True}
KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
MODELS = ("llama1b", "qwen25_05b", "qwen3_4b9", "llama8b8", "mistral7b8", "gemma3_1b")
STEPS = 6
CALIBRATION = 66
# trainings that calibration does not see: model, method, length, samples a step, whether packed
WORKLOADS = {
    "a": ("llama8b", "qlora", 2048, 8, True),
    "b": ("qwen25_15b", "lora", 1024, 16, False),
    "c": ("llama1b", "full", 2048, 8, True),
}
SIZES = {1024: (1, 2, 4, 8, 16), 2048: (1, 2, 4, 8), 4096: (1, 2, 4), 512: (2, 4, 8, 16)}


def variant(method: str, length: int, samples: int, rng: random.Random) -> dict[str, Any]:
    """Keys that leave the result of a training as it is, by chance."""
    micro = rng.choice([size for size in SIZES[length] if samples % size == 0])
    keys: dict[str, Any] = {"micro_batch_size": micro, "gradient_accumulation_steps": samples // micro}
    keys["gradient_checkpointing"] = rng.random() < 0.5
    if keys["gradient_checkpointing"] and rng.random() < 0.2:
        keys["activation_offloading"] = True
    loss = rng.choice(list(LOSSES))
    keys |= LOSSES[loss]
    if rng.random() < 0.35:
        keys |= OTHER_LIGER
    if method in ("lora", "qlora"):
        keys |= dict.fromkeys(KERNELS, rng.random() < 0.5)
    plain, paged = ("adamw_torch_fused", "adamw_torch"), ("adamw_8bit", "paged_adamw_8bit")
    keys["optimizer"] = rng.choice(plain if method == "full" or rng.random() < 0.6 else paged)
    return keys


def calibration(rng: random.Random) -> dict[str, Any]:
    """Everything by chance."""
    cases: dict[str, Any] = {}
    for number in range(CALIBRATION):
        model = MODELS[number % len(MODELS)]
        small = model in ("llama1b", "qwen25_05b", "gemma3_1b")
        method = rng.choice(["lora", "lora", "qlora", "qlora", "lora8", "full"] if small else ["lora", "qlora"])
        length = rng.choice([512, 1024, 2048, 2048, 4096])
        samples = rng.choice([max(SIZES[length]) // 2, max(SIZES[length])])
        keys = {**METHODS[method], "sequence_len": length, **variant(method, length, samples, rng)}
        keys |= batches(rng.random() < 0.6)
        keys["attn_implementation"] = rng.choice(["flash_attention_2", "sdpa"])
        version = ("0.21.0", "0.19.0")[number % 5 == 4]
        name = f"cal{number:02d}_{method}_{model}@{version.split('.')[1]}"
        cases[name] = _case(model, keys, version, "calibration")
    return cases


def batches(packed: bool) -> dict[str, Any]:
    """Constant shapes, one way or the other."""
    return {"sample_packing": True, "pad_to_sequence_len": True} if packed else {"pad_to_sequence_len": True}


def workloads(rng: random.Random) -> dict[str, Any]:
    """Ten variants of each training, no two alike."""
    cases: dict[str, Any] = {}
    for workload, (model, method, length, samples, packed) in WORKLOADS.items():
        seen: list[dict[str, Any]] = []
        while len(seen) < 10:
            keys = variant(method, length, samples, rng)
            if keys in seen:
                continue
            seen.append(keys)
            whole = {**METHODS[method], "sequence_len": length, **batches(packed), **keys}
            whole["attn_implementation"] = "flash_attention_2" if packed else "sdpa"
            cases[f"{workload}{len(seen)}_{method}_{model}@21"] = _case(model, whole, "0.21.0", f"workload {workload}")
    return cases


def _case(model: str, keys: dict[str, Any], version: str, workload: str) -> dict[str, Any]:
    return {"model": model, "axolotl": version, "workload": workload, "config": {"max_steps": STEPS, **keys}}


if __name__ == "__main__":
    draw = {"calibration": calibration, "workloads": workloads}[sys.argv[1]]
    print(json.dumps(draw(random.Random(int(sys.argv[2]))), indent=1))
