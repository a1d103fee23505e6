"""Cases for `unsloth_runs.py`, drawn by chance, the data they train on, and the batches that will come of it.

    python unsloth_cases.py SEED COUNT > cases.json

Nobody chooses a case because of what it would show. One case in four has a Gemma: it compiles for minutes.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from typing import Any

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
MODELS = (
    "llama1b",
    "llama8b8",
    "qwen25_05b",
    "qwen3_4b9",
    "mistral7b8",
    "llama3b",
    "tinyllama",
    "qwen25_15b",
    "qwen3_06b",
    "granite2b",
)
SMALL = ("llama1b", "qwen25_05b", "tinyllama", "qwen25_15b", "qwen3_4b9", "qwen3_06b")
GEMMAS = ("gemma3_1b", "gemma2_2b")
METHODS = ("qlora", "qlora", "qlora", "lora16", "lora16", "8bit", "full")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SAMPLES, EVALUATED = 200, 16


def _words(seed: int) -> tuple[random.Random, list[str]]:
    rng = random.Random(seed)
    return rng, ["".join(rng.choice(_LETTERS) for _ in range(rng.randint(2, 9))) for _ in range(4000)]


def tokenizer_words() -> str:
    """What the tokenizer learns from."""
    return " ".join(_words(3)[1])


def texts() -> list[str]:
    """The samples: lengths are log-normal."""
    rng, words = _words(4)
    return [
        " ".join(rng.choices(words, k=max(20, min(1500, int(rng.lognormvariate(5.2, 0.9)))))) for _ in range(_SAMPLES)
    ]


def draw(number: int, rng: random.Random) -> tuple[str, list[Any]]:
    """One case, everything by chance."""
    method = rng.choice(METHODS)
    model = rng.choice(GEMMAS if number % 4 == 0 else SMALL if method == "full" else MODELS)
    load: dict[str, Any] = {"load_in_4bit": method == "qlora", "max_seq_length": rng.choice([512, 1024, 2048, 2048])}
    load |= {"8bit": {"load_in_8bit": True}, "full": {"full_finetuning": True}}.get(method, {})
    length = load["max_seq_length"]
    micro = rng.choice([size for size in (1, 2, 4, 8, 16) if size * length <= 16_384])
    args: dict[str, Any] = {"per_device_train_batch_size": micro}
    args["gradient_accumulation_steps"] = rng.choice([1, 1, 2, 4])
    args["max_length"] = length
    args["optim"] = rng.choice(["adamw_8bit", "adamw_8bit", "adamw_torch_fused", "paged_adamw_8bit"])
    if rng.random() < 0.25:
        args["packing"] = True
    if rng.random() < 0.3:
        args |= {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": rng.choice([1, 2, 4, 8])}
    peft = None if method == "full" else _lora(rng)
    if method == "full":
        args["gradient_checkpointing"] = False  # of the config; Unsloth's own argument decides
        load["use_gradient_checkpointing"] = rng.choice(["unsloth", True, False])
    return f"w{number:02d}_{method}_{model}", [model, load, peft, args]


def _lora(rng: random.Random) -> dict[str, Any]:
    lora: dict[str, Any] = {"r": rng.choice([8, 16, 32, 64, 128])}
    lora["use_gradient_checkpointing"] = rng.choice(["unsloth", "unsloth", True, False])
    if rng.random() < 0.2:
        lora["lora_dropout"] = 0.05
    chance = rng.random()
    if chance < 0.25:
        lora["target_modules"] = rng.choice([["q_proj", "v_proj"], TARGETS[:4], TARGETS[4:]])
    elif chance < 0.37:
        lora["target_modules"] = [*TARGETS, "lm_head", "embed_tokens"]
    return lora


def batches(
    case: list[Any], lengths: list[int], order: Callable[[int, int], list[int]], steps: int = 5
) -> list[dict[str, list[int]]]:
    """The batches of a training's first steps, as the runner records them.

    `lengths` are tokens of the samples; `order(count, epoch)` is the permutation in which the trainer takes its rows.
    """
    args = case[3]
    rows = _rows(case, lengths)
    micro, each = args["per_device_train_batch_size"], args.get("gradient_accumulation_steps", 2)
    found: list[dict[str, list[int]]] = []
    done = held = epoch = 0
    while done < steps:
        taken = order(len(rows), epoch)
        for start in range(0, len(rows), micro):
            found.append(_flattened([rows[number] for number in taken[start : start + micro]]))
            held += 1
            if held == each or start + micro >= len(rows):
                done, held = done + 1, 0
            if done == steps:
                break
        epoch += 1
    return found


def eval_batches(case: list[Any], lengths: list[int]) -> list[dict[str, list[int]]]:
    """The batches of one evaluation, over the first samples; none where nothing is evaluated."""
    size = case[3].get("per_device_eval_batch_size")
    rows = _rows(case, lengths[:EVALUATED]) if size else []
    return [_flattened(rows[start : start + size]) for start in range(0, len(rows), size or 1)]


def _rows(case: list[Any], lengths: list[int]) -> list[list[int]]:
    """Rows of samples, cut; TRL's own default length does not count."""
    most, said = case[1].get("max_seq_length", 2048), case[3].get("max_length", 2048)
    most = said if said < most and said != 1024 else most
    return packed(lengths, most) if case[3].get("packing") else [[min(length, most)] for length in lengths]


def _flattened(rows: list[list[int]]) -> dict[str, list[int]]:
    samples = [length for row in rows for length in row]
    return {"input_ids": [1, sum(samples)], "packed_seq_lengths": [len(samples)]}


def packed(lengths: list[int], most: int) -> list[list[int]]:
    """Rows of samples by best fit, the longest first, as TRL packs them."""
    rows: list[list[int]] = []
    room: dict[int, list[int]] = {}
    for length in sorted((min(one, most) for one in lengths), reverse=True):
        free = min((space for space, held in room.items() if held and space >= length), default=None)
        if free is None:
            rows.append([])
            number, free = len(rows) - 1, most
        else:
            number = room[free].pop(0)
        rows[number].append(length)
        room.setdefault(free - length, []).append(number)
    return rows


if __name__ == "__main__":
    drawn = random.Random(int(sys.argv[1]))
    print(json.dumps(dict([draw(number, drawn) for number in range(int(sys.argv[2]))]), indent=1))
