"""Twelve configs of `vramwise new`, to be run on one large card under the memory of the cards they were written for:

    python bench/card/new_cases.py FOLDER        # writes configs, shapes, data, cases.json and predictions.jsonl
    python FOLDER/run_new.py OUT --jobs 3        # on the card: makes the models, starts each trainer, see new_runs.py

Models are folders with the shapes of real ones; their weights are random and made on the card. The configs name
`models/NAME` and `data.jsonl`, so that nothing in them has to be changed there. Each is predicted twice before it runs:
on the card it was written for, and on the one it runs on, whose libraries take other workspaces.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "src")]

from vramwise.facts.gpus import find_gpus  # noqa: E402
from vramwise.options import NewOptions, Options  # noqa: E402
from vramwise.verbs.new import new  # noqa: E402
from vramwise.verbs.starting.result import New  # noqa: E402

_LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "rms_norm_eps": 1e-5}
_LLAMA |= {"max_position_embeddings": 131072, "num_key_value_heads": 8}
_QWEN = {"vocab_size": 151936, "tie_word_embeddings": True, "rms_norm_eps": 1e-6}
SHAPES: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B": _LLAMA
    | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
    | {"tie_word_embeddings": False, "head_dim": 128},
    "Llama-3.2-3B": _LLAMA
    | {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24}
    | {"tie_word_embeddings": True, "head_dim": 128},
    "Llama-3.2-1B": _LLAMA
    | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32}
    | {"tie_word_embeddings": True, "head_dim": 64},
    "Qwen3-4B": _QWEN
    | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 2560, "intermediate_size": 9728}
    | {"num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    | {"max_position_embeddings": 40960},
    "Qwen2.5-0.5B": _QWEN
    | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "intermediate_size": 4864}
    | {"num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2}
    | {"max_position_embeddings": 32768},
}
# Model, card, trainer, method, whether as a script.
CASES = (
    ("Llama-3.1-8B", "rtx-4090", "trl", "auto", False),
    ("Qwen3-4B", "rtx-3090", "trl", "auto", True),
    ("Llama-3.2-1B", "l4", "trl", "auto", False),
    ("Qwen3-4B", "h100", "trl", "auto", True),
    ("Llama-3.1-8B", "rtx-4090", "unsloth", "auto", True),
    ("Llama-3.1-8B", "l4", "unsloth", "qlora", True),
    ("Qwen3-4B", "rtx-3090", "unsloth", "lora", True),
    ("Llama-3.2-3B", "a100-40gb", "unsloth", "auto", True),
    ("Llama-3.1-8B", "rtx-4090", "axolotl", "auto", False),
    ("Llama-3.1-8B", "a100-40gb", "axolotl", "auto", False),
    ("Qwen3-4B", "l4", "axolotl", "qlora", False),
    ("Qwen2.5-0.5B", "rtx-3090", "axolotl", "full", False),
)
# What the two archives of packages hold, and the torch of the machine.
TORCH = "2.11.0"
ARCHIVES = {
    "unsloth": (
        *("unsloth==2026.10.9", "trl==1.15.0", "transformers==5.17.0", "peft==0.21.2", "accelerate==1.15.0"),
        *("bitsandbytes==0.50.2", "liger-kernel==0.8.4"),
    ),
    "axolotl": ("axolotl==0.21.0",),
}
RUNS_ON = "h200"
_SPECIAL = ("<unk>", "<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>")
_TURN = "{{ m['role'] }}: {{ m['content'] }}{{ eos_token }}"


def write_data(folder: Path, words: list[str]) -> None:
    """Chats of lengths as people have them: one epoch is about ten steps."""
    rng = random.Random(5)
    rows = []
    for _ in range(240):
        said = [" ".join(rng.choices(words, k=k)) for k in (15, max(10, min(1200, int(rng.lognormvariate(4.9, 0.8)))))]
        turns = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), said, strict=True)]
        rows.append(json.dumps({"messages": turns}))
    (folder / "data.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")


def write_model(folder: Path, shape: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Its config.json and its tokenizer; the weights are made on the card."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3, "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(shape | numbers, indent=2), encoding="utf-8")
    tokenizer.save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    told |= {"unk_token": "<unk>", "chat_template": "{% for m in messages %}" + _TURN + "{% endfor %}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told, indent=2), encoding="utf-8")


def tokenizer_of(words: list[str]) -> Tokenizer:
    """Byte-level pairs learned from the words."""
    found = Tokenizer(models.BPE(unk_token=None))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learning = trainers.BpeTrainer(vocab_size=4000, special_tokens=list(_SPECIAL), initial_alphabet=alphabet)
    found.train_from_iterator([" ".join(words)], learning)
    return found


def write_case(number: int, model: str, card: str, trainer: str, method: str, script: bool) -> None:
    """The config, how it is run, and what is predicted of it."""
    name = f"{number:02}-{trainer}-{model}-{card}"
    file = f"{name}.{'py' if script else 'yml'}"
    archive = "axolotl" if trainer == "axolotl" else "unsloth"
    kept = tuple(one for one in ARCHIVES[archive] if trainer == "unsloth" or not one.startswith("unsloth"))
    ask = NewOptions(
        model=f"models/{model}", method=method, data="data.jsonl", script=script, path=file, epochs=1, online=False
    )
    made = new(ask, Options(gpu=card, trainer=trainer, torch=TORCH, versions=kept))
    if not made.fits:
        raise SystemExit(f"{name}: nothing fits")
    (Path("configs") / file).write_text(made.text, encoding="utf-8")
    case = {"name": name, "file": file, "trainer": trainer, "archive": archive, "model": model, "card": card}
    case |= {"method": made.method, "limit_bytes": made.prediction.capacity_bytes}
    case |= {"alloc": made.subject.run.allocator.settings}
    with Path("cases.jsonl").open("a", encoding="utf-8") as listed:
        listed.write(json.dumps(case) + "\n")
    with Path("predictions.jsonl").open("a", encoding="utf-8") as listed:
        listed.write(json.dumps({"name": name, **predicted(made)}) + "\n")
    print(name, made.method, f"{made.prediction.needs.highest_reserved_bytes / 2**30:.2f} GiB", flush=True)


def predicted(made: New) -> dict[str, Any]:
    """On the card it was written for, and on the one that it runs on."""
    gpu = find_gpus(RUNS_ON)[1]
    there = made.subject.moved_to(gpu).prediction(on_card=False).needs
    needs = made.prediction.needs
    return {
        "reserved_bytes": needs.highest_reserved_bytes,
        "allocated_bytes": needs.highest_allocated_bytes,
        "reserved_on_h200_bytes": there.highest_reserved_bytes,
        "allocated_on_h200_bytes": there.highest_allocated_bytes,
        "micro_batch": made.subject.run.batch.micro_batch_size,
        "packed": made.packed,
        "findings": [found.rule for found in made.findings],
    }


def main() -> None:
    """Write everything that the card needs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    (folder / "configs").mkdir(parents=True, exist_ok=True)
    for name in ("new_child.py", "watch.py"):
        shutil.copy(HERE / name, folder / name)
    shutil.copy(HERE / "new_runs.py", folder / "run_new.py")
    os.chdir(folder)
    rng = random.Random(4)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(4000)]
    tokenizer = tokenizer_of(words)
    write_data(Path(), words)
    for name, shape in SHAPES.items():
        write_model(Path("models") / name, shape, tokenizer)
    for listed in ("cases.jsonl", "predictions.jsonl"):
        Path(listed).unlink(missing_ok=True)
    for number, case in enumerate(CASES):
        write_case(number, *case)


if __name__ == "__main__":
    main()
