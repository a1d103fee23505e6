"""Draws runs of TRL 1.16 and LLaMA-Factory 0.9.5 with a rarer option each: `SEED TRL LLAMAFACTORY > cases.json`.

The rest of a case is what `trainer_cases.py` draws. Nobody chooses a case because of what it would show.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

from trainer_cases import MODELS, SMALL, STAGES, TRL_METHODS, llamafactory_case, trl_case

_BADAM = {"use_badam": True, "badam_switch_interval": 2}
_OFT = {"finetuning_type": "oft", "oft_target": "all"}
_HEAD = {"upcast_lmhead_output": True}
FACTORY = {
    "lora": (
        {"use_dora": True},
        _HEAD,
        _OFT,
        {"quantization_bit": 8},
        {"pissa_init": True},
        {"loraplus_lr_ratio": 16.0},
    ),
    "qlora": ({"use_dora": True}, _HEAD, _OFT, {"upcast_layernorm": True}),
    "full": (
        _BADAM,
        {**_BADAM, "badam_switch_mode": "descending"},
        _HEAD,
        {"use_adam_mini": False, "optim": "adafactor"},
    ),
}
TRL = {
    "sft": (
        *({"activation_offloading": True}, {"padding_free": True}, {"use_liger_kernel": True}, {"loss_type": "nll"}),
        *({"completion_only_loss": False}, {"pad_to_multiple_of": 64}, {"optim": "lion_8bit"}),
    ),
    "dpo": ({"precompute_ref_log_probs": True}, {"loss_type": ["ipo"]}, {"padding_free": True}),
    "kto": ({"precompute_ref_log_probs": True}, {"loss_type": "apo_zero_unpaired"}),
    "reward": ({"center_rewards_coefficient": 0.01}, {"max_length": 512}),
}


def with_option(trainer: str, method: str, tuned: str, rng: random.Random) -> dict[str, Any]:
    """The keys of a case, and its rarer option."""
    if trainer == "trl":
        keys = trl_case(method, tuned, rng) | rng.choice(TRL[method])
        if keys.get("padding_free"):
            keys |= {"attn_implementation": "flash_attention_2", "packing": False, "max_length": None}
        return keys
    keys = llamafactory_case(method, tuned, rng) | rng.choice(FACTORY[tuned])
    if keys["finetuning_type"] == "oft":
        keys = {key: value for key, value in keys.items() if key not in ("use_dora", "use_rslora", "loraplus_lr_ratio")}
    if keys.get("use_badam"):
        keys |= {"finetuning_type": "full", "optim": "adamw_torch"}
    return keys


def main() -> None:
    """Print the cases."""
    seed, *counts = map(int, sys.argv[1:4])
    rng = random.Random(seed)
    cases: dict[str, Any] = {}
    for (trainer, methods), count in zip((("trl", TRL_METHODS), ("llamafactory", STAGES)), counts, strict=True):
        for number in range(count):
            method = methods[number % len(methods)]
            tuned = rng.choice(["lora", "lora", "qlora", "full"])
            model = rng.choice(SMALL if tuned == "full" or method not in ("sft", "pt") else MODELS)
            case = {"trainer": trainer, "method": method, "model": model}
            case |= {
                "config": with_option(trainer, method, tuned, rng),
                "alloc": rng.choice(["", "expandable_segments:True"]),
            }
            flash = case["config"].get("flash_attn") == "fa2"
            older = trainer == "llamafactory" and (rng.random() < 0.3 or flash)
            case["site"] = {"trl": "trl-1.16:axolotl-0.21", "llamafactory": "llamafactory:base"}[trainer]
            if older:
                case["site"] = f"llamafactory457:{case['site']}"
            cases[f"{trainer}{seed % 10000}{number:02d}_{method}_{tuned}_{model}"] = case
    print(json.dumps(cases, indent=1))


if __name__ == "__main__":
    main()
