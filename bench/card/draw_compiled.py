"""Draws runs of Axolotl with torch.compile and fp8 by chance.

python bench/card/draw_compiled.py > bench/card/compiled_cases.json
python tests/measured/axolotl_memory.py --foretell bench/card/compiled_cases.json    # writes the predictions
"""

from __future__ import annotations

import json
import random
from typing import Any

COUNT, SEED = 24, 20261120
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


def main() -> None:
    """Print the cases."""
    draw = random.Random(SEED)
    print(json.dumps({f"compiled_{number:02d}": case(draw) for number in range(COUNT)}, indent=1))


if __name__ == "__main__":
    main()
