"""Predicted against measured step times of Unsloth, and whether the order of the variants is right.

    python bench/unsloth_speed.py MEASURED.jsonl [--kernels NAME]

Each measured run is a case of `card/unsloth_runs.py --timed`: seconds of steps, shapes of the batches, the kernels of
one step. Variants are compared by tokens a second, since packed ones train on more tokens a step.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from speed import errors_of, kendall, regret  # noqa: E402
from unsloth_foretell import step_seconds  # noqa: E402

# Of a run's batches, so many are priced: evenly taken, all steps are of the same kind.
_PRICED = 16


def rates_of_run(row: dict[str, Any]) -> tuple[float, float, float]:
    """Predicted and measured seconds of a step, and the tokens of one."""
    each = row["case"][3].get("gradient_accumulation_steps", 2)
    first = len(row.get("first_seconds", ())) * each
    batches = row["widths"][first : first + each * len(row["step_seconds"])]
    tokens = sum(batch["input_ids"][0] * batch["input_ids"][1] for batch in batches) / len(row["step_seconds"])
    taken = batches[:: max(1, len(batches) // _PRICED)]
    return step_seconds({**row, "widths": taken}), median(row["step_seconds"]), tokens


def main() -> None:
    """Print a line a run, then the errors and the order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--kernels", default="", help="print the measured kernels of this run")
    arguments = parser.parse_args()
    pairs, by_token = [], []
    for line in arguments.measured.read_text().splitlines():
        row = json.loads(line)
        if not row.get("step_seconds"):
            continue
        if arguments.kernels:
            for name, count, us in row["kernels"] if row["name"] == arguments.kernels else ():
                print(f"{us:12.1f} us {count:6d} × {name}")
            continue
        guess, truth, tokens = rates_of_run(row)
        pairs.append((guess, truth))
        by_token.append((guess / tokens, truth / tokens))
        on_card = sum(us for _, _, us in row.get("kernels", ())) / 1e6
        figures = f"{guess:7.3f} s, measured {truth:7.3f} s {guess / truth - 1:+7.1%}"
        print(
            f"{row['name']:32s} {figures}, {tokens / truth:7.0f} tokens a second, kernels {on_card:6.3f} s", flush=True
        )
    if len(pairs) > 1:
        off = [abs(error) for error in errors_of(pairs)]
        order = f"order τ {kendall(by_token):.2f}, the fastest predicted is {regret(by_token):.1%} slower than the best"
        print(f"{len(pairs)} runs: off by {median(off):.1%} (median), {max(off):.1%} at most; {order}")


if __name__ == "__main__":
    main()
