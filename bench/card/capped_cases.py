"""Draws runs of TRL, Axolotl and Unsloth by chance, most of them under a limit: a card that may be too small for them.

    python capped_cases.py SEED OUT_DIR

Writes OUT_DIR/trainers.json for `axolotl_runs.py` and OUT_DIR/unsloth.json for `unsloth_runs.py`. Each of five kinds
(LoRA with dropout, an 8-bit base, a full fine-tune in bf16, evaluation, QLoRA) comes with each trainer; everything else
is left to chance. `share`: the limit over the peak that will be predicted (`tests/measured/capped.py`); a few runs
have none.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

KINDS = ("dropout", "8bit", "full", "evaluation", "qlora")
MODELS = ("llama1b", "qwen25_05b", "qwen3_4b9", "mistral7b8", "llama8b8", "qwen25_15b", "tinyllama", "smollm2_17b")
SMALL = ("llama1b", "qwen25_05b", "qwen3_4b9", "tinyllama", "smollm2_360m")
OPTIMIZERS = ("adamw_torch_fused", "adamw_torch_fused", "adamw_8bit", "paged_adamw_8bit")
COUNTS = {"trl": 10, "axolotl": 8, "unsloth": 8}
UNLIMITED = 6


def _adapter(kind: str, rng: random.Random, names: tuple[str, str]) -> dict[str, Any]:
    rank, dropout = names
    if kind == "full":
        return {}
    return {rank: rng.choice([8, 16, 32, 64]), dropout: 0.05 if kind == "dropout" else rng.choice([0.0, 0.0, 0.05])}


def _batch(rng: random.Random, longest: int) -> tuple[int, int, int]:
    """Tokens of a row, rows of a micro-batch, micro-batches of a step."""
    length = rng.choice([512, 1024, 2048])
    micro = rng.choice([rows for rows in (1, 2, 4, 8) if rows * length <= longest])
    return length, micro, rng.choice([1, 1, 2, 4])


def trl_case(kind: str, rng: random.Random) -> dict[str, Any]:
    """One run of `trl sft`: every row is longer than a batch is wide."""
    length, micro, each = _batch(rng, 8192)
    keys: dict[str, Any] = {"max_length": length, "per_device_train_batch_size": micro}
    keys |= {"gradient_accumulation_steps": each, "optim": rng.choice(OPTIMIZERS), "bf16": True, "dtype": "bfloat16"}
    if kind != "full":
        keys |= {"use_peft": True, "lora_target_modules": "all-linear"}
    keys |= _adapter(kind, rng, ("lora_r", "lora_dropout"))
    keys |= {"8bit": {"load_in_8bit": True}, "qlora": {"load_in_4bit": True}}.get(kind, {})
    keys["gradient_checkpointing"] = rng.random() < 0.6
    if kind == "evaluation":
        keys |= {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": rng.choice([1, 2, 4, 8])}
    case = {"trainer": "trl", "method": "sft", "file": "full.jsonl", "site": "unsloth:common", "config": keys}
    return {**case, "alloc": rng.choice(["", "", "expandable_segments:True"])}


def axolotl_case(kind: str, rng: random.Random) -> dict[str, Any]:
    """One run of `axolotl train`: every batch is filled up."""
    length, micro, each = _batch(rng, 8192)
    keys: dict[str, Any] = {"sequence_len": length, "micro_batch_size": micro, "pad_to_sequence_len": True}
    keys |= {"gradient_accumulation_steps": each, "optimizer": rng.choice(OPTIMIZERS)}
    if kind != "full":
        keys |= {"adapter": "qlora" if kind == "qlora" else "lora", "lora_alpha": 32, "lora_target_linear": True}
    keys |= _adapter(kind, rng, ("lora_r", "lora_dropout"))
    keys |= {"8bit": {"load_in_8bit": True}, "qlora": {"load_in_4bit": True}}.get(kind, {})
    keys["gradient_checkpointing"] = rng.random() < 0.6
    keys["attn_implementation"] = rng.choice(["sdpa", "flash_attention_2"])
    if kind == "evaluation":
        keys |= {"val_set_size": 0.1, "eval_steps": 2, "eval_batch_size": rng.choice([1, 2, 4, 8])}
    elif keys["attn_implementation"] == "flash_attention_2" and rng.random() < 0.5:
        keys["sample_packing"] = True
    alloc = rng.choice(["expandable_segments:True", "expandable_segments:True", ""])
    return {"axolotl": "0.21.0", "site": "axolotl:common", "config": keys, "alloc": alloc}


def unsloth_case(kind: str, rng: random.Random) -> list[Any]:
    """The arguments of Unsloth's two calls and of the config; batches are flattened."""
    length, micro, each = _batch(rng, 16_384)
    load: dict[str, Any] = {"load_in_4bit": kind == "qlora", "max_seq_length": length}
    load |= {"8bit": {"load_in_8bit": True}, "full": {"full_finetuning": True}}.get(kind, {})
    args = {"per_device_train_batch_size": micro, "gradient_accumulation_steps": each, "max_length": length}
    args["optim"] = rng.choice(OPTIMIZERS)
    checkpointing = rng.choice(["unsloth", True, False])
    peft = None if kind == "full" else {**_adapter(kind, rng, ("r", "lora_dropout"))}
    if peft is None:
        load["use_gradient_checkpointing"], args["gradient_checkpointing"] = checkpointing, False
    else:
        peft["use_gradient_checkpointing"] = checkpointing
    if kind == "evaluation":
        args |= {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": rng.choice([1, 2, 4, 8])}
    return [load, peft, args]


def main() -> None:
    """Write both files."""
    rng = random.Random(int(sys.argv[1]))
    out = Path(sys.argv[2])
    shares = [round(rng.uniform(0.7, 1.4), 3) for _ in range(sum(COUNTS.values()) - UNLIMITED)] + [None] * UNLIMITED
    rng.shuffle(shares)
    trainers: dict[str, Any] = {}
    unsloth: dict[str, Any] = {}
    for trainer, count in COUNTS.items():
        for number in range(count):
            kind = KINDS[number % len(KINDS)]
            model = rng.choice(SMALL if kind == "full" else MODELS)
            name, share = f"k{trainer[0]}{number:02d}_{kind}_{model}", shares.pop()
            if trainer == "unsloth":
                unsloth[name] = [model, *unsloth_case(kind, rng), {"share": share}]
            else:
                made = trl_case(kind, rng) if trainer == "trl" else axolotl_case(kind, rng)
                trainers[name] = {"model": model, **made, "share": share}
    for name, cases in (("trainers", trainers), ("unsloth", unsloth)):
        (out / f"{name}.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
