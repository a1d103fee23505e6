"""Draws runs of Axolotl with torch.compile and fp8 by chance.

python bench/card/draw_compiled.py first > bench/card/compiled_cases.json
python bench/card/draw_compiled.py second > bench/card/compiled_cases_second.json
python bench/card/draw_compiled.py pairs > bench/card/compiled_pairs.json
python tests/measured/axolotl_memory.py --foretell bench/card/compiled_cases.json    # writes the predictions
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

SEED = 20261120
MODELS = ("llama1b", "llama8b8", "llama3b", "mistral7b8")
LORA = {"adapter": "lora", "lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.0, "lora_target_linear": True}
PLAIN = dict.fromkeys(("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel"), False)


def case(draw: random.Random) -> dict[str, Any]:
    """Return one case."""
    compiles = draw.random() < 0.8
    method = draw.choice(({}, {}, LORA, {**LORA, **PLAIN}))
    config: dict[str, Any] = {**method, "torch_compile": compiles, "pad_to_sequence_len": True}
    if not method and (draw.random() < 0.5 or not compiles):
        config["fp8"] = True
    config["gradient_checkpointing"] = draw.random() < 0.5
    config["micro_batch_size"] = draw.choice((1, 2, 4))
    config["sequence_len"] = draw.choice((1024, 2048, 4096))
    config["gradient_accumulation_steps"] = draw.choice((1, 1, 2))
    return {"model": draw.choice(MODELS), "axolotl": "0.21.0", "alloc": "expandable_segments:True", "config": config}


def second(draw: random.Random) -> dict[str, Any]:
    """Return one case of the second lot: also FlashAttention, packed rows, dropout and quantised bases."""
    found = case(draw)
    config = found["config"]
    if config.get("adapter") and draw.random() < 0.4:
        config |= {"adapter": "qlora", "load_in_4bit": True}
    if config.get("adapter") and draw.random() < 0.3:
        config |= {"lora_dropout": 0.05, **PLAIN}
    if draw.random() < 0.4:
        config["attn_implementation"] = "flash_attention_2"
    if draw.random() < 0.3:
        config["sample_packing"] = True
    found["model"] = draw.choice((*MODELS, "qwen25_15b", "qwen3_06b"))
    return found


def pairs(draw: random.Random, count: int) -> dict[str, Any]:
    """Return pairs for speed: a run, and the same in bf16 or uncompiled. The first of a pair is the plain one."""
    found = {}
    for number in range(count):
        fast = case(draw)
        fast["config"] |= {"torch_compile": True, "gradient_accumulation_steps": 1}
        key = "fp8" if "fp8" in fast["config"] else "torch_compile"
        plain = {**fast, "config": {name: value for name, value in fast["config"].items() if name != key}}
        found |= {f"pair_{number:02d}_plain": plain, f"pair_{number:02d}_{key}": fast}
    return found


def main() -> None:
    """Print the cases of a lot."""
    lot = sys.argv[1]
    if lot == "first":
        draw = random.Random(SEED)
        cases = {f"compiled_{number:02d}": case(draw) for number in range(24)}
    elif lot == "second":
        draw = random.Random(SEED + 1)
        cases = {f"compiled_{number:02d}": second(draw) for number in range(24, 40)}
    else:
        cases = pairs(random.Random(SEED + 2), 12)
    print(json.dumps(cases, indent=1))


if __name__ == "__main__":
    main()
