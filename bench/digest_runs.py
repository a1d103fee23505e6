"""Digests of simulated runs, one line a run: run it before and after a change that must not alter any of them.

Model types are drawn by `--seed`, some of them traced. Each gets `--ways` of the 18 combinations of full, LoRA or QLoRA
× checkpointing × 1, 2 or 8 cards, so that all are drawn equally often, and one of DPO and GRPO. A line holds digests of
the event stream, of the peaks, and of the JSON of `predict`, `check` and, for every `--fit-every`th case, `fit`. The
recorded runs beside the tests follow, with the digest of every event stream that their prediction makes.

    python bench/digest_runs.py > before.txt
    python bench/digest_runs.py --types 100 --ways 18 --fit-every 4 --recorded-every 1    # more of everything
    python bench/digest_runs.py --only gemma3 --dump FOLDER    # the answers themselves, and the events as text
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import islice, product
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "measured"), str(HERE.parent / "src")]

from digest import answer  # noqa: E402
from traced_cases import _SIZES, NEWER, NEWEST, UNKNOWN  # noqa: E402
from vramwise.allocator.run import simulate  # noqa: E402
from vramwise.allocator.settings import parse_settings  # noqa: E402
from vramwise.bundled import bundled_json  # noqa: E402
from vramwise.errors import VramwiseError  # noqa: E402
from vramwise.ghost.loops import sft  # noqa: E402
from vramwise.models.templates import NotCovered, document_of, template_types  # noqa: E402
from vramwise.opening.options import Options  # noqa: E402
from vramwise.opening.subject import open_subject  # noqa: E402
from vramwise.timeline import Action, Repeat, Timeline  # noqa: E402

TRUTH = HERE.parent / "tests" / "data" / "truth"
# The reader of recorded runs by the first word of their file.
_READERS = {
    "axolotl": "axolotl_memory",
    "ranks": "rank_memory",
    "trainers": "trainer_memory",
    "unsloth": "unsloth_memory",
}
METHODS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"adapter": "lora", "lora_r": 16, "lora_alpha": 32, "lora_target_linear": True},
    "qlora": {"adapter": "qlora", "load_in_4bit": True, "lora_r": 8, "lora_alpha": 16, "lora_target_linear": True},
}
_FSDP = {
    "fsdp_version": 2,
    "fsdp_config": {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "reshard_after_forward": True},
}
# By the number of cards; the first for half of the cases, the second for the others.
SHARDING: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {
    1: ({}, {}),
    2: ({}, {"deepspeed": "zero2.json"}),
    8: (_FSDP, {"deepspeed": "zero3.json"}),
}
_STEPS: dict[str, Any] = {
    "sequence_len": 1024,
    "micro_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "num_epochs": 1,
    "learning_rate": 0.0002,
    "bf16": True,
    "output_dir": "out",
}
_TUNING: dict[str, Any] = {
    "datasets": [{"path": "tatsu-lab/alpaca", "type": "alpaca"}],
    "val_set_size": 0.05,
    "pad_to_sequence_len": True,
    "optimizer": "adamw_torch_fused",
}
PREFERENCE: tuple[dict[str, Any], ...] = (
    {"rl": "dpo", "datasets": [{"path": "Intel/orca_dpo_pairs", "type": "chatml.intel", "split": "train"}]},
    {
        "rl": "grpo",
        "datasets": [{"path": "openai/gsm8k", "name": "main", "type": "rewards.prompts"}],
        "micro_batch_size": 4,
        "trl": {"num_generations": 4, "max_completion_length": 256, "reward_funcs": ["rewards.length"]},
    },
)


def digest(lines: Iterable[str]) -> str:
    """Return the first digits of a checksum over lines."""
    total = hashlib.sha256()
    for line in lines:
        total.update(line.encode() + b"\n")
    return total.hexdigest()[:16]


def stream(timeline: Timeline, *, free_in_order: bool = False) -> Iterator[str]:
    """Yield a timeline as text: tensors by the order of their requests, marks by their names.

    With `free_in_order`, what is freed without a request in between is freed in the order of the requests: an allocator
    is left the same.
    """
    numbers: dict[int, int] = {}
    freed: list[int] = []
    for action, tensor, size, where, tag in timeline.events:
        if action == Action.FREE and free_in_order:
            freed.append(numbers[tensor])
            continue
        yield from (f"-{number}" for number in sorted(freed))
        freed = []
        if action == Action.ALLOC:
            numbers[tensor] = len(numbers)
            yield f"+{numbers[tensor]} {size} {where} {' '.join(timeline.tags[tag])}"
        elif action == Action.FREE:
            yield f"-{numbers[tensor]}"
        elif action == Action.PHASE:
            yield "phase {} {}".format(*timeline.phases[tag])
        else:
            yield Action(action).name
    yield from (f"-{number}" for number in sorted(freed))
    yield from _repeats(timeline.repeats, numbers)


def events_digest(timelines: Iterable[Timeline]) -> str:
    """Return a digest of the events as they are, and one with frees in order."""
    exact, ordered = [
        digest(line for timeline in timelines for line in stream(timeline, free_in_order=in_order))
        for in_order in (False, True)
    ]
    return f"events {exact} in order {ordered}"


def _repeats(repeats: Iterable[Repeat], numbers: dict[int, int]) -> Iterator[str]:
    for repeat in repeats:
        carry = [(numbers.get(old), numbers.get(new)) for old, new in repeat.carry]
        yield f"repeat {repeat.start} {repeat.end} {repeat.times} {repeat.steps} {carry}"
        yield from _repeats(repeat.inner, numbers)


@contextmanager
def recorded_streams() -> Iterator[list[Timeline]]:
    """Collect the timelines of all ghost runs that are made meanwhile."""
    plain, made = sft.ghost_run, []
    import_module("vramwise.variants.simulate")  # else it would keep the stand-in

    def ghost_run(*words: Any, **named: Any) -> Any:
        result = plain(*words, **named)
        made.append(result[0])
        return result

    users = [module for module in sys.modules.values() if getattr(module, "ghost_run", None) is plain]
    for module in users:
        module.ghost_run = ghost_run  # type: ignore[attr-defined]
    try:
        yield made
    finally:
        for module in users:
            module.ghost_run = plain  # type: ignore[attr-defined]


def families() -> dict[str, dict[str, Any]]:
    """Return the published config with the fewest layers, by model type."""
    found: dict[str, dict[str, Any]] = {}
    for shape in bundled_json("models/models.json")["shapes"]:
        config = shape["config"]
        layers = config.get("num_hidden_layers") or config.get("n_layer") or 999
        known = found.get(config["model_type"])
        if known is None or layers < (known.get("num_hidden_layers") or known.get("n_layer") or 999):
            found[config["model_type"]] = config
    return found


def traces() -> dict[str, dict[str, Any]]:
    """Return a small config of every type with a shipped trace that covers it: no torch is needed."""
    sizes = {**UNKNOWN, **NEWER, **NEWEST}
    found = {}
    for name in sorted(template_types()):
        config = {**_SIZES, **sizes.get(name, {}), "model_type": name}
        with suppress(NotCovered):
            document_of(config)
            found[name] = config
    return found


def drawn(configs: dict[str, dict[str, Any]], number: int, chance: random.Random) -> dict[str, dict[str, Any]]:
    """Return that many of the configs, drawn from those that can be predicted."""
    names = sorted(configs)
    chance.shuffle(names)
    found = {}
    for name in names:
        if len(found) < number:
            _write(name, configs[name], METHODS["lora"])
            if open_subject(Path("case.yml"), Options(gpu="h200")).model is not None:
                found[name] = configs[name]
    return found


def cases(types: int, traced: int, ways: int, seed: int) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], int]]:
    """Yield the name, model, config and cards of each case."""
    chance = random.Random(seed)
    models = {**drawn(families(), types - traced, chance), **drawn(traces(), traced, chance)}
    combinations = list(product(METHODS, (False, True), SHARDING))
    following: list[tuple[str, bool, int]] = []
    for number, (name, model) in enumerate(models.items()):
        while len(following) < ways:
            chance.shuffle(combinations)
            following += combinations
        for turn in range(ways):
            method, again, cards = following.pop(0)
            config = {**METHODS[method], **SHARDING[cards][(number + turn) % 2], "gradient_checkpointing": again}
            label = f"{name} {method}{' gc' if again else ''} {cards}"
            yield label, model, {**_TUNING, **config}, cards
        method, cards = chance.choice(list(METHODS)), chance.choice(list(SHARDING))
        aim = PREFERENCE[number % 2]
        config = {**METHODS[method], **SHARDING[cards][0], "gradient_checkpointing": chance.random() < 0.5}
        yield f"{name} {aim['rl']} {method} {cards}", model, {**config, **aim}, cards


def _write(name: str, model: dict[str, Any], config: dict[str, Any]) -> None:
    folder = Path("models") / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**model, "random_weights": True}), encoding="utf-8")
    text = json.dumps({"base_model": str(folder), **_STEPS, **config}, indent=1)
    Path("case.yml").write_text(text, encoding="utf-8")


def case_line(label: str, model: dict[str, Any], config: dict[str, Any], cards: int, verbs: list[str]) -> list[str]:
    """Return the parts of a case's line, and its answers: (what, exit code, text)."""
    _write(label.partition(" ")[0], model, config)
    words = ("--gpu", f"{cards}xh200" if cards > 1 else "h200", "--format", "json")
    answers = []
    with recorded_streams() as made:
        answers += [(verb, *answer((verb, *words), Path("case.yml"))) for verb in verbs]
        if not verbs:
            open_subject(Path("case.yml"), Options(gpu=words[1])).prediction()
    parts = ["events -", "peaks -"]
    if made:
        torch = (2, 11)
        report = simulate(made[0], parse_settings("", torch), torch=torch)
        parts = [
            events_digest(made[:1]),
            f"peaks {report.highest_allocated_bytes} {report.highest_reserved_bytes}",
        ]
        answers.append(("events", 0, "\n".join(stream(made[0]))))
    parts += [f"{verb} {code} {digest([text])}" for verb, code, text in answers if verb != "events"]
    return ["; ".join(parts), *[f"{what}\t{code}\n{text}" for what, code, text in answers]]


def _recorded_runs() -> Iterator[tuple[str, dict[str, Any], Callable[[dict[str, Any]], Any]]]:
    """Yield the file, the record and the prediction of each recorded run; the file's first word tells its reader."""
    accuracy, truth = import_module("accuracy"), import_module("truth")
    for path in sorted(TRUTH.glob("*.jsonl")):
        word = path.name.partition("-")[0]
        if word == "h200":
            for line in path.read_text(encoding="utf-8").splitlines():
                yield path.stem, json.loads(line), lambda row: accuracy.predict(truth._case(row, TRUTH))
        elif word in _READERS:
            reader = import_module(_READERS[word])
            for row in reader.rows([path]):
                yield path.stem, row, reader.predicted


def recorded(every: int) -> Iterator[tuple[str, str]]:
    """Yield the name and the line of every Nth recorded run."""
    for stem, row, read in islice(_recorded_runs(), None, None, every):
        with recorded_streams() as made:
            try:
                read(row)
                text = ""
            except (VramwiseError, LookupError, TypeError, ValueError) as error:
                text = f" {type(error).__name__}"
        yield f"{stem} {row['name']}", f"{events_digest(made)}{text}"


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=38)
    parser.add_argument("--types", type=int, default=60, help="model types to draw")
    parser.add_argument("--traced", type=int, default=20, help="how many of them are traced ones")
    parser.add_argument("--ways", type=int, default=2, help="combinations a type")
    parser.add_argument("--fit-every", type=int, default=20, help="0: `fit` is not run")
    parser.add_argument("--events", action="store_true", help="only event streams and peaks: no verb is run")
    parser.add_argument("--recorded-every", type=int, default=3, help="0: no recorded run")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--dump", type=Path, help="write each answer and the events into this folder")
    asked = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "NO_COLOR": "1", "VRAMWISE_TRACE": "0"}  # no torch: shipped traces
    if asked.dump:
        asked.dump = asked.dump.resolve()
        asked.dump.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for stage in (2, 3):
            zero = {"zero_optimization": {"stage": stage}, "bf16": {"enabled": True}}
            Path(f"zero{stage}.json").write_text(json.dumps(zero), encoding="utf-8")
        for number, case in enumerate(cases(asked.types, asked.traced, asked.ways, asked.seed)):
            if asked.only not in case[0]:
                continue
            verbs = [] if asked.events else ["predict", "check"]
            if verbs and asked.fit_every and not number % asked.fit_every:
                verbs.append("fit")
            line, *answers = case_line(*case, verbs)
            print(f"{case[0]}: {line}", flush=True)
            for each in answers if asked.dump else ():
                what, _, text = each.partition("\t")
                (asked.dump / f"{case[0].replace(' ', '_')}.{what}").write_text(text, encoding="utf-8")
        for name, line in recorded(asked.recorded_every) if asked.recorded_every else ():
            if asked.only in name:
                print(f"{name}: {line}", flush=True)
        os.chdir(HERE)


if __name__ == "__main__":
    main()
