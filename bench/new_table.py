"""`vramwise new` over models, cards and trainers: is every config clean, does it fit, does `fit` find a faster one?

    python bench/new_table.py FOLDER --seconds 60 --jobs 6     # goes on where the last call ended, until all are done
    python bench/new_table.py FOLDER --table bench/results/new_table.md
    python bench/new_table.py FOLDER --unpack                  # writes the configs as files, for new_parsers.py

A row a combination, in an order in which every model, card and trainer has its turn, so that the rows that are done
are a fair sample: the method that was chosen, what it needs, findings of `check`, and how much faster the best of `fit`
is. "nothing" is an answer too: the card is too small for every method. Versions are those that the newest release of
each trainer installs with; packages of this machine do not count. The data has 400 rows of chat messages. FOLDER keeps
rows.jsonl and configs.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from time import monotonic, process_time
from typing import Any

from vramwise.opening.options import FitOptions, NewOptions, Options, Text
from vramwise.units import GIB
from vramwise.verbs.check import check_source
from vramwise.verbs.fit import fit_source
from vramwise.verbs.new import new, starting_trainers

MODELS = (
    *("Qwen/Qwen2.5-0.5B", "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-4B", "google/gemma-2-9b", "Qwen/Qwen3-30B-A3B"),
    *("meta-llama/Llama-3.2-1B", "mistralai/Mistral-7B-v0.3", "Qwen/Qwen3-14B", "microsoft/phi-4", "Qwen/Qwen3-0.6B"),
    *("meta-llama/Llama-3.2-3B", "Qwen/Qwen2.5-7B", "google/gemma-3-1b-it", "HuggingFaceTB/SmolLM2-1.7B"),
    *("Qwen/Qwen3-8B", "meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen2.5-32B", "allenai/OLMo-2-1124-7B"),
    *("openai/gpt-oss-20b", "mistralai/Mixtral-8x7B-v0.1"),
)
CARDS = ("rtx-4090", "t4", "h100", "rtx-3060", "a100-40gb", "rtx-5090")
# A folder without packages: those of this machine do not count.
NO_PACKAGES = "no-packages"
# Less than this is no difference in speed that could be told.
_SAME = 1.03
# There are fewer cards than models, and fewer trainers than cards: each has its turn sooner.
_WEIGHTS = (20, 6, 4)


def data_file(folder: Path) -> Path:
    """Chat messages of lengths as people have them."""
    rng = random.Random(7)
    words = ["the", "model", "learns", "quickly", "from", "data", "and", "cards", "with", "memory"]
    rows = []
    for _ in range(400):
        said = [" ".join(rng.choices(words, k=size)) for size in (20, max(1, int(rng.lognormvariate(5, 0.8))))]
        turns = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), said, strict=True)]
        rows.append(json.dumps({"messages": turns}))
    path = folder / "data.jsonl"
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def file_of(case: tuple[str, str, str]) -> Path:
    """Where its config is kept."""
    model, card, trainer = case
    name = f"{model.replace('/', '--')}.{card}.{trainer}"
    return Path("configs") / f"{name}.{'py' if trainer == 'unsloth' else 'yml'}"


def judged(case: tuple[str, str, str], *, fits: bool) -> dict[str, object]:
    """One combination, with the `text` of its config and what it needs beside it."""
    model, card, trainer = case
    as_read = Options(gpu=card, site=(NO_PACKAGES,))  # as anybody checks the file: nobody names the trainer
    options = replace(as_read, trainer=trainer)
    began = process_time()
    try:
        found = new(NewOptions(model=model, data="data.jsonl", online=False), options)
    except Exception as error:
        return {"case": case, "error": f"{type(error).__name__}: {error}"[:200]}
    row: dict[str, object] = {"case": case, "seconds": process_time() - began, "method": found.method}
    if not found.fits:
        row["stops"] = found.only_stops
        return {**row, "nothing": found.closest is not None, "misses": getattr(found.closest, "short_bytes", 0) / GIB}
    row |= {"text": found.text, "companions": dict(found.companions)}
    for name, text in found.companions.items():  # as `--out` does; the same for every combination
        whole = Path(f"{name}.{os.getpid()}")
        whole.write_text(text, encoding="utf-8")
        whole.replace(name)
    report = check_source(Text(found.text), as_read, alone=True)
    prediction = report.prediction
    assert prediction is not None
    spare = (prediction.capacity_bytes or 0) - prediction.needs.highest_reserved_bytes
    row |= {
        "findings": [one.rule for one in report.findings],
        "fits": prediction.fits,
        "kind": prediction.verdict().kind,
        "spare": spare / GIB,
        "needs": prediction.needs.highest_reserved_bytes / GIB,
        "packed": found.packed,
        "micro": found.subject.run.batch.micro_batch_size,
        "step": found.speed and found.speed.step_seconds,
    }
    if fits:
        began = process_time()
        better = fit_source(Text(found.text), as_read, FitOptions(online=False)).fit
        best, now = better.best, better.original
        row["fit_seconds"] = process_time() - began
        faster = now.seconds / best.seconds if best and best.seconds and now.seconds and not best.tight else 1.0
        row |= {"faster": faster, "by": best.words if best and faster >= _SAME else ""}
    return row


def line(row: dict[str, object]) -> str:
    """A row of the table."""
    case = " | ".join(row["case"])  # type: ignore[arg-type]
    if "error" in row:
        return f"| {case} | error: {row['error']} |"
    if row.get("stops"):
        return f"| {case} | nothing | QLoRA would fit, and stops | | | | {row['seconds']:.0f} |"
    if "nothing" in row:
        return f"| {case} | nothing | misses by {row['misses']:.1f} GiB | | | | {row['seconds']:.0f} |"
    clean = ", ".join(row["findings"]) or "none"  # type: ignore[arg-type]
    faster = f"{row['faster']:.2f} {row['by']}" if "faster" in row else ""
    packed = "packed" if row["packed"] else "padded"
    return (
        f"| {case} | {row['method']}, {packed}, micro {row['micro']} | {row['needs']:.1f} GiB, {row['spare']:.1f} to "
        f"spare | {row['kind']} | {clean} | {faster} | {row['seconds']:.0f} |"
    )


def main() -> None:
    """Do some more rows, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=60, help="start no row after so many")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--no-fit", action="store_true", help="do not look for faster variants")
    parser.add_argument("--table", type=Path, help="write what is done so far, and do no more")
    parser.add_argument("--unpack", action="store_true", help="write the configs as files, and do no more")
    asked = parser.parse_args()
    table = asked.table and asked.table.resolve()
    asked.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(asked.folder)
    rows = _lines(Path("rows.jsonl"))
    if table is not None:
        head = "| model | card | trainer | chosen | needs | verdict | findings | `fit` | CPU s |"
        lines = [summary(rows), "", head, "|---" * 9 + "|", *sorted(map(line, rows))]
        table.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    if not Path("data.jsonl").exists():
        data_file(Path())
    if asked.unpack:
        unpack()
        return
    done = {tuple(row["case"]) for row in rows}
    left = [case for case in in_turns() if case not in done]
    for row in side_by_side(left, asked.jobs, monotonic() + asked.seconds, fits=not asked.no_fit):
        config = {"case": row["case"], "text": row.pop("text", ""), "companions": row.pop("companions", {})}
        for name, one in (("rows.jsonl", row), ("configs.jsonl", config)):
            with Path(name).open("a", encoding="utf-8") as file:
                file.write(json.dumps(one) + "\n")
        print(line(row), flush=True)


def in_turns() -> list[tuple[str, str, str]]:
    """All combinations, in an order in which no model, card or trainer gets ahead of the others by much."""
    left = list(product(MODELS, CARDS, starting_trainers()))
    random.Random(11).shuffle(left)
    had: Counter[str] = Counter()
    order = []
    while left:
        best = min(left, key=lambda case: sum(had[word] * weight for word, weight in zip(case, _WEIGHTS, strict=True)))
        left.remove(best)
        had.update(best)
        order.append(best)
    return order


def side_by_side(
    cases: list[tuple[str, str, str]], jobs: int, end: float, *, fits: bool
) -> Iterator[dict[str, object]]:
    """Rows as they are done; no case is begun after the end."""
    todo = list(cases)
    running: set[Future[dict[str, object]]] = set()
    with ProcessPoolExecutor(jobs) as pool:
        while running or (todo and monotonic() < end):
            while todo and len(running) < jobs and monotonic() < end:
                running.add(pool.submit(partial(judged, fits=fits), todo.pop(0)))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                yield one.result()


def unpack() -> None:
    """Every config as a file, and what it needs beside it."""
    Path("configs").mkdir(exist_ok=True)
    for row in _lines(Path("configs.jsonl")):
        if row["text"]:
            file_of(tuple(row["case"])).write_text(row["text"], encoding="utf-8")
        for name, text in row["companions"].items():
            Path(name).write_text(text, encoding="utf-8")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(one) for one in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def summary(rows: list[dict[str, object]]) -> str:
    """How many of the configs are as promised."""
    made = [row for row in rows if "findings" in row]
    clean = sum(not row["findings"] for row in made)
    fitting = sum(row["kind"] == "fits" for row in made)
    timed = [row for row in made if "faster" in row]
    slower = sum(float(str(row["faster"])) >= _SAME for row in timed)
    nothing, failed = sum("nothing" in row for row in rows), sum("error" in row for row in rows)
    of = len(MODELS) * len(CARDS) * len(starting_trainers())
    return (
        f"{len(rows)} of {of} combinations: {len(made)} configs, {nothing} where nothing fits, {failed} errors. Of the "
        f"configs {clean} without a finding, {fitting} fit with a margin; `fit` finds something faster for {slower} of "
        f"{len(timed)}."
    )


if __name__ == "__main__":
    main()
