"""Draws trainings to be timed, each in several variants: `python draw_speed.py SEED COUNT > cases.json`.

A full fine-tune, a LoRA and a QLoRA with Axolotl; a full fine-tune and a LoRA with transformers' Trainer, and one with
TRL's packed rows, as scripts. Model, length, batch and everything that variants differ in come by chance. The seed is a
commit's hash, which nobody chooses.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import script_speed_cases as scripts
import speed_cases as configs

MODELS = ("qwen25_05b", "qwen3_06b", "llama1b", "tinyllama", "gemma3_1b", "qwen25_15b", "smollm2_360m", "smollm2_17b")
LENGTHS, SAMPLES, MOST_TOKENS = (512, 1024, 2048), (4, 8), 8192
AXOLOTL, SCRIPTS = ("full", "lora", "qlora"), ("script-full", "script-lora", "script-packed")

Variant = Callable[[], dict[str, Any]]


def batch(rng: random.Random) -> tuple[int, int]:
    """Tokens of a row and rows of a step."""
    length = rng.choice(LENGTHS)
    return length, min(rng.choice(SAMPLES), MOST_TOKENS // length)


def axolotl(method: str, model: str, rng: random.Random) -> tuple[Callable[[dict[str, Any]], dict[str, Any]], Variant]:
    """What makes a case of a variant, and what draws one."""
    length, samples = batch(rng)
    packed = rng.random() < 0.5
    attention = "flash_attention_2" if packed else rng.choice(("sdpa", "flash_attention_2"))
    common = {**configs.METHODS[method], "sequence_len": length, **configs.batches(packed)}
    common |= {"attn_implementation": attention, "max_steps": scripts.STEPS}

    def variant() -> dict[str, Any]:
        keys = configs.variant(method, length, samples, rng)
        if keys.pop("activation_offloading", False):
            keys["gradient_checkpointing"] = "offload"
        return keys

    def case(keys: dict[str, Any]) -> dict[str, Any]:
        return {"model": model, "axolotl": "0.21.0", "workload": method, "config": {**common, **keys}}

    return case, variant


def script(kind: str, model: str, rng: random.Random) -> tuple[Callable[[dict[str, Any]], dict[str, Any]], Variant]:
    """The same for a training script."""
    length, samples = batch(rng)
    lora, packed = kind == "script-lora", kind == "script-packed"
    if packed:
        lora = rng.random() < 0.5
    workload = scripts.Workload(model, rng.choice(("bfloat16", "float32")), lora, packed, length, samples)
    return (
        lambda keys: scripts.case(kind, workload, keys),
        lambda: scripts.variant(packed, samples, rng),
    )


def cases(seed: int, count: int) -> dict[str, Any]:
    """So many variants of each workload, no two alike; one of each after the other, so that a cut takes of all."""
    rng = random.Random(seed)
    models = rng.sample(MODELS, len(AXOLOTL) + len(SCRIPTS))
    drawn: list[list[tuple[str, dict[str, Any]]]] = []
    for name, model in zip((*AXOLOTL, *SCRIPTS), models, strict=True):
        case, variant = (axolotl if name in AXOLOTL else script)(name, model, rng)
        seen: list[dict[str, Any]] = []
        while len(seen) < count:
            keys = variant()
            if keys not in seen:
                seen.append(keys)
        drawn.append([(f"{name}{number}", case(keys)) for number, keys in enumerate(seen, 1)])
    return {pair[0]: pair[1] for turn in zip_longest(*drawn) for pair in turn}


if __name__ == "__main__":
    print(json.dumps(cases(int(sys.argv[1], 16), int(sys.argv[2])), indent=1))
