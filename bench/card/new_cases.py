"""Twelve configs of `vramwise new`, to be run on one large card under the memory of the cards they were written for:

    python bench/card/new_cases.py FOLDER           # writes configs, shapes, data, cases.jsonl and predictions.jsonl
    python FOLDER/run_new.py OUT --seconds 480      # on the card: makes the models, starts the trainers; new_runs.py

Three of each trainer are drawn by chance from the models and cards of `new_table.py`. Models are folders with the
shapes of real ones; their weights are random and made on the card. The configs name `models/NAME` and `data.jsonl`, so
that nothing in them has to be changed there. Each is predicted twice before it runs:
on the card it was written for, and on the one it runs on, whose libraries take other workspaces. They run in turns, a
trainer each, the smallest model first; those of `--last` come after all others.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "src"), str(HERE.parent)]

import vramwise.facts  # noqa: E402
from new_table import CARDS, MODELS  # noqa: E402
from vramwise.allocator.variables import EXPANDABLE  # noqa: E402
from vramwise.facts.gpus import find_gpus  # noqa: E402
from vramwise.models.known import from_catalogue  # noqa: E402
from vramwise.models.parameters import parameter_count  # noqa: E402
from vramwise.opening.options import NewOptions, Options  # noqa: E402
from vramwise.opening.subject import on_target  # noqa: E402
from vramwise.types import ModelSpec  # noqa: E402
from vramwise.verbs.new import new  # noqa: E402
from vramwise.verbs.starting.plan import New  # noqa: E402

MODELS_FILE = Path(vramwise.facts.__file__).with_name("models.json")

# Classes of transformers, by model type.
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
}
# Larger ones take too long to make and to load.
MOST_PARAMETERS = 9_500_000_000
SEED, OF_EACH = 23, 3
# The folders of packages of each trainer, the first one first, what they hold, and the torch of the machine.
TORCH = "2.11.0"
SITES = {
    "axolotl": ("axolotl-0.21",),
    "trl": ("trl-1.16", "axolotl-0.21"),
    "llamafactory": ("llamafactory", "axolotl-0.21"),
    "unsloth": ("unsloth", "axolotl-0.21"),
}
_COMMON = ("bitsandbytes==0.50.2", "liger-kernel==0.8.4")
VERSIONS = {
    "axolotl": ("axolotl==0.21.0",),
    "trl": ("trl==1.16.0", "transformers==5.20.1", "peft==0.21.2", "accelerate==1.15.0", *_COMMON),
    "llamafactory": (
        *("llamafactory==0.9.5", "transformers==5.6.0", "trl==0.24.0", "peft==0.18.1", "accelerate==1.11.0"),
        *_COMMON,
    ),
    "unsloth": (
        *("unsloth==2026.10.9", "trl==1.15.0", "transformers==5.17.0", "peft==0.21.2", "accelerate==1.15.0"),
        *_COMMON,
    ),
}
ORDER = ("unsloth", "trl", "llamafactory", "axolotl")
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


def draw(seed: int = SEED) -> list[tuple[str, str, str, bool]]:
    """Model, card, trainer, and whether as a script: no model or card twice with one trainer."""
    rng = random.Random(seed)
    small = [name for name in MODELS if parameter_count(_known(name)) <= MOST_PARAMETERS]
    found = []
    for trainer in SITES:
        drawn = zip(rng.sample(small, OF_EACH), rng.sample(CARDS, OF_EACH), strict=True)
        for model, card in drawn:
            script = trainer == "unsloth" or (trainer == "trl" and rng.random() < 0.5)
            found.append((model, card, trainer, script))
    return found


def _known(name: str) -> ModelSpec:
    model = from_catalogue(name)
    assert model is not None
    return model


def shape_of(name: str) -> dict[str, Any]:
    """The fields of its config.json."""
    shapes = json.loads(MODELS_FILE.read_text(encoding="utf-8"))["shapes"]
    found: dict[str, Any] = next(shape["config"] for shape in shapes if name in shape["ids"])
    return {"architectures": [ARCHITECTURES[found["model_type"]]], **found}


def write_case(number: int, model: str, card: str, trainer: str, script: bool) -> bool:
    """The config, how it is run, and what is predicted of it; False where nothing fits."""
    short = model.rpartition("/")[2]
    name = f"{number:02}-{trainer}-{short}-{card}"
    file = f"{name}.{'py' if script else 'yml'}"
    ask = NewOptions(model=f"models/{short}", data="data.jsonl", script=script, path=file, epochs=1, online=False)
    made = new(ask, Options(gpu=card, trainer=trainer, torch=TORCH, versions=VERSIONS[trainer]))
    if not made.fits:
        print(f"{name}: nothing fits", flush=True)
        return False
    (Path("configs") / file).write_text(made.text, encoding="utf-8")
    for path, text in made.companions.items():
        Path(path).write_text(text, encoding="utf-8")
    case = {"name": name, "file": file, "trainer": trainer, "sites": SITES[trainer], "model": short, "card": card}
    case |= {"method": made.method, "limit_bytes": made.prediction.capacity_bytes}
    case |= {"alloc": _allocator(made), "parameters": parameter_count(_known(model))}
    with Path("cases.jsonl").open("a", encoding="utf-8") as listed:
        listed.write(json.dumps(case) + "\n")
    with Path("predictions.jsonl").open("a", encoding="utf-8") as listed:
        listed.write(json.dumps({"name": name, **predicted(made)}) + "\n")
    print(name, made.method, f"{made.prediction.needs.highest_reserved_bytes / 2**30:.2f} GiB", flush=True)
    return True


def _allocator(made: New) -> str:
    """The setting that the launch command or the config asks for."""
    return EXPANDABLE if EXPANDABLE in made.launch else made.subject.run.allocator.settings


def predicted(made: New) -> dict[str, Any]:
    """On the card it was written for, and on the one that it runs on."""
    here = made.subject
    target = replace(here.target, gpu=find_gpus(RUNS_ON)[1], alloc_conf=_allocator(made))
    there = on_target(here.document, here.trainer, target).knowing(here).prediction(on_card=False).needs
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
    parser.add_argument("--last", nargs="*", default=[], help="numbers of cases that may wait, such as 01 06")
    asked = parser.parse_args()
    folder = asked.folder
    (folder / "configs").mkdir(parents=True, exist_ok=True)
    for name in ("new_child.py", "watch.py"):
        shutil.copy(HERE / name, folder / name)
    shutil.copy(HERE / "new_runs.py", folder / "run_new.py")
    os.chdir(folder)
    rng = random.Random(4)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(4000)]
    tokenizer = tokenizer_of(words)
    write_data(Path(), words)
    listed = Path("cases.jsonl")
    before = [json.loads(line) for line in listed.read_text().splitlines()] if listed.exists() else []
    done, counts = {case["name"].partition("-")[2] for case in before}, Counter(case["trainer"] for case in before)
    for number, (model, card, trainer, script) in enumerate([one for more in range(4) for one in draw(SEED + more)]):
        short = model.rpartition("/")[2]
        if counts[trainer] == OF_EACH or f"{trainer}-{short}-{card}" in done:
            continue
        write_model(Path("models") / short, shape_of(model), tokenizer)
        done.add(f"{trainer}-{short}-{card}")
        counts[trainer] += write_case(number, model, card, trainer, script)
    put_in_order(listed, asked.last)


def put_in_order(listed: Path, last: list[str]) -> None:
    """Unsloth first, which takes longest to start."""
    cases = [json.loads(line) for line in listed.read_text(encoding="utf-8").splitlines()]
    cases.sort(key=lambda case: case["parameters"])
    turns: Counter[str] = Counter()
    ranked = []
    for case in cases:
        case["later"] = later = case["name"][:2] in last
        turns[case["trainer"]] += not later
        ranked.append((later, turns[case["trainer"]], ORDER.index(case["trainer"]), case["parameters"], case))
    ranked.sort(key=lambda one: one[:-1])
    listed.write_text("".join(json.dumps(one[-1]) + "\n" for one in ranked), encoding="utf-8")


if __name__ == "__main__":
    main()
