"""Predictions of the runs that `card/capped_cases.py` drew, before they ran, and how they compare with what came.

    python tests/measured/capped.py CASES_DIR > predicted.jsonl     # before: also writes each run's limit into its case
    python tests/measured/capped.py CASES_DIR --again > now.jsonl    # the same with today's code, at the limits that were set
    python tests/measured/capped.py --judge predicted.jsonl MEASURED.jsonl ...
    python tests/measured/capped.py --verdicts predicted.jsonl now.jsonl results/capped_came.jsonl    # a table, and the count

Each run is predicted by the command, once on the whole card and once under its limit, as a user would ask.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(Path(__file__).parent), str(HERE), str(HERE / "card"), str(HERE.parent / "src")]

MIB = 1024**2
MODELS = json.loads((HERE / "card" / "models.json").read_text())
BESIDE = ("torch==2.11.0", "peft==0.21.2", "bitsandbytes==0.50.2", "accelerate==1.15.0")
STACKS = {
    "trl": ("trl==1.15.0", "transformers==5.17.0", *BESIDE),
    "axolotl": ("axolotl==0.21.0", "transformers==5.20.1", *BESIDE),
    "unsloth": ("unsloth==2026.10.9", "trl==1.15.0", "transformers==5.17.0", "xformers==0", *BESIDE),
}
STEPS = 5


def asked(trainer: str, file: Path, alloc: str, rows: list[str], limit_mib: int | None) -> dict[str, Any]:
    """What the command answers."""
    words = [sys.executable, "-m", "vramwise", "predict", str(file), "--gpu", "h200", "--format", "json"]
    words += ["--steps", str(STEPS), "--offline", *rows]
    words += [part for one in STACKS[trainer] for part in ("--with", one)]
    words += ["--alloc-conf", alloc] if trainer != "unsloth" else []
    words += ["--trainer", "trl:sft"] if trainer == "trl" else []
    words += ["--memory-limit", f"{limit_mib}MiB"] if limit_mib else []
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=file.parent)
    if done.returncode == 2:
        raise SystemExit(f"{file}: {done.stderr}")
    return json.loads(done.stdout)


def figures(answer: dict[str, Any]) -> dict[str, float]:
    """Peaks in MiB, of loading and of everything."""
    load = answer["phases"]["load"]
    return {
        "load_reserved_mib": round(load["peak_reserved_bytes"] / MIB, 1),
        "allocated_mib": round(answer["peak_allocated_bytes"] / MIB, 1),
        "reserved_mib": round(answer["peak_reserved_bytes"] / MIB, 1),
    }


def model_in(folder: Path, name: str) -> str:
    """A model's folder, as on the card."""
    (folder / "MODEL").mkdir()
    shape = {**MODELS[name], "dtype": "bfloat16", "random_weights": True}
    (folder / "MODEL" / "config.json").write_text(json.dumps(shape))
    return str(folder / "MODEL")


def trainer_file(folder: Path, name: str, case: dict[str, Any]) -> tuple[str, Path, str, list[str]]:
    """A config as the run has it, and the lengths of its rows."""
    from axolotl_runs import config_of

    trainer = case.get("trainer", "axolotl")
    key = "model_name_or_path" if trainer == "trl" else "base_model"
    config = {**config_of(name, case), key: model_in(folder, case["model"])}
    (folder / "config.yml").write_text(json.dumps(config))
    rows = []
    if trainer == "trl":
        for option in ("lengths", "eval-lengths"):
            (folder / option).write_text(f"{config['max_length']}\n" * 120)
            rows += [f"--{option}", str(folder / option)]
    return trainer, folder / "config.yml", case["alloc"], rows


def unsloth_file(folder: Path, name: str, case: list[Any]) -> tuple[str, Path, str, list[str]]:
    """A script with the run's calls, and its samples in the order in which they come."""
    from unsloth_cases import EVALUATED

    from unsloth_foretell import lengths, order
    from unsloth_memory import script_of

    (folder / "train.py").write_text(script_of({"case": case}, Path(model_in(folder, case[0]))))
    samples, longest = lengths(), case[1]["max_seq_length"]
    taken = [samples[number] for epoch in range(9) for number in order(len(samples), epoch)]
    rows = []
    for option, found in (("lengths", taken), ("eval-lengths", samples[:EVALUATED])):
        (folder / option).write_text("".join(f"{min(one, longest)}\n" for one in found))
        rows += [f"--{option}", str(folder / option)]
    return "unsloth", folder / "train.py", "", rows


def foretell(place: Path, *, again: bool) -> None:
    """Print a line a run; the first time, a limit is a share of what is predicted."""
    for file in (place / "trainers.json", place / "unsloth.json"):
        if not file.exists():
            continue
        cases = json.loads(file.read_text())
        for name, case in cases.items():
            told = case[4] if isinstance(case, list) else case
            with tempfile.TemporaryDirectory() as folder:
                made = unsloth_file if isinstance(case, list) else trainer_file
                run = made(Path(folder), name, case)
                free = asked(*run, None)
                if told["share"] and not again:
                    told["limit_mib"] = round(told["share"] * free["peak_reserved_bytes"] / MIB)
                row = {"name": name, "trainer": run[0], "share": told["share"], **figures(free)}
                if limit := told.get("limit_mib"):
                    answer = asked(*run, limit)
                    row |= {"limit_mib": limit, "fits": answer["fits"], "retries": answer["retries"]}
                    row |= {"verdict": answer.get("verdict")}
            told["foretold"] = figures(free)
            print(json.dumps(row), flush=True)
        if not again:
            file.write_text(json.dumps(cases, indent=1) + "\n")


def measured(row: dict[str, Any]) -> dict[str, float | None]:
    """The peaks of a run that reached its end; of one that died, how it ended."""
    if row["rc"] or len(row.get("steps", ())) < STEPS:
        return {"reserved_mib": None}
    readings = [*row["steps"], *row.get("eval_peaks", ())]
    found = {
        "allocated_mib": max([step[0] for step in readings] + [row.get("overall_allocated_mib", 0)]),
        "reserved_mib": max([step[2] for step in readings] + [row.get("overall_reserved_mib", 0)]),
    }
    load = row["load"][2] if "load" in row else row["load_peak_reserved_mib"]
    return {"load_reserved_mib": load, **found}


def judge(predicted: Path, files: list[Path]) -> None:
    """Print a line a run: the errors, and whether the verdict under the limit was right."""
    came = {row["name"]: row for file in files for row in map(json.loads, file.read_text().splitlines())}
    for guess in map(json.loads, predicted.read_text().splitlines()):
        row = came.get(guess["name"])
        if row is None:
            print(f"{guess['name']:32s} not run")
            continue
        truth = measured(row)
        line = f"{guess['name']:32s} "
        for key in ("load_reserved_mib", "allocated_mib", "reserved_mib"):
            seen = truth.get(key)
            line += f"{key[:-4]} {guess[key]:8.1f} " + (
                f"{seen:8.1f} {guess[key] / seen - 1:+7.2%}  " if seen else "- "
            )
        if guess.get("limit_mib"):
            lived = truth["reserved_mib"] is not None
            line += f"limit {guess['limit_mib']} ({guess['share']}) said {guess['verdict'] or guess['fits']}, "
            line += f"{'lived' if lived else 'died'} with {row.get('retries')} retries"
        if row["rc"] and "out of memory" not in (row.get("tail", "") + row.get("error", "")).lower():
            line += f" rc {row['rc']}: {(row.get('error') or row.get('tail', ''))[-200:]!r}"
        print(line)


RIGHT = {"fits": ("ran",), "tight": ("ran", "ran with retries"), "does_not_fit": ("out of memory",)}


def verdicts(first: Path, now: Path, came: Path) -> None:
    """Print a row a run under a limit, with both verdicts; then how many were right. "May not fit" is neither."""
    rows = {file: {row["name"]: row for row in map(json.loads, file.read_text().splitlines())} for file in (first, now)}
    ends = [row for row in map(json.loads, came.read_text().splitlines()) if row["predicted"] == first.name]
    counts = {file: Counter[str]() for file in rows}
    print("| run | limit, MiB | at first contact | today | came |\n|---|---:|---|---|---|")
    for end in ends:
        told = {file: found[end["name"]]["verdict"]["kind"] for file, found in rows.items()}
        for file, kind in told.items():
            judged = "left open" if kind not in RIGHT else "right" if end["came"] in RIGHT[kind] else "wrong"
            counts[file][f"{kind}: {judged}"] += 1
        limit = rows[first][end["name"]]["limit_mib"]
        words = " | ".join(kind.replace("_", " ") for kind in told.values())
        print(f"| {end['name']} | {limit:,} | {words} | {end['came']} |")
    for file, count in counts.items():
        print(
            f"\n{file.name}: {len(ends)} runs; "
            + ", ".join(f"{name} {number}" for name, number in sorted(count.items()))
        )


def main() -> None:
    """Predict, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", type=Path, help="the folder of the cases; with --judge the predictions")
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--verdicts", action="store_true")
    arguments = parser.parse_args()
    if arguments.judge:
        judge(arguments.place, arguments.files)
    elif arguments.verdicts:
        verdicts(arguments.place, *arguments.files)
    else:
        foretell(arguments.place, again=arguments.again)


if __name__ == "__main__":
    main()
