"""Traced models against families written by hand, and against measured runs.

Needs torch (a CPU build is enough) and transformers. For each case the model is run twice: as its family describes it,
and as traced from transformers' own code. One line a case: peaks after loading in MiB, and how much of the last step's
allocations of 1 MiB and more the two have in common, in order and size.

    python bench/traced.py                                  # the measured runs of shared/truth, or those of the tests
    python bench/traced.py tests/measured/family_cases.jsonl         # one step of every family that no recorded run had
    python bench/traced.py FILE.jsonl --only NAME --blocks  # and which allocations differ, by part of the model
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "measured"), str(HERE.parent / "src")]

from accuracy import alignment, last_step, peaks_after_load, predict  # noqa: E402
from truth import Case, _case, cases  # noqa: E402
from vramwise.allocator.repeats import unroll  # noqa: E402
from vramwise.allocator.run import simulate  # noqa: E402
from vramwise.allocator.settings import parse_settings  # noqa: E402
from vramwise.errors import VramwiseError  # noqa: E402
from vramwise.models.traces import model_from_trace  # noqa: E402
from vramwise.timeline import Action, Timeline  # noqa: E402
from vramwise.types import ModelSpec  # noqa: E402

MIB = 1024**2
# what transformers since 5.20 does; measured runs had 5.17, and are compared with traces of releases before 5.20
SINCE_5_20 = {"expert_masks": "none", "rotary_by_product": False}
_NO_PASS = "no pass for weights in "


def traced(case: Case, config: dict[str, Any]) -> tuple[ModelSpec, Timeline]:
    """The traced model of a case and its run, in the precision that the run asks for."""
    mode = "bf16, autocast"
    for _ in range(2):
        model = model_from_trace(_document(json.dumps(config), mode), name=case.name, source="trace")
        try:
            return model, predict(replace(case, model=model))
        except VramwiseError as error:
            if _NO_PASS not in str(error):
                raise
            mode = str(error).partition(_NO_PASS)[2].partition(":")[0]
    raise LookupError(mode)


@cache
def _document(config: str, mode: str) -> dict[str, Any]:
    from vramwise.models.recorder.document import document

    return document(json.loads(config), [mode])


def peaks(case: Case, timeline: Timeline) -> tuple[float, float]:
    """Allocated and reserved in MiB."""
    settings = parse_settings(case.run.allocator.settings, case.run.target.torch)
    return peaks_after_load(simulate(timeline, settings, torch=case.run.target.torch))


def by_part(timeline: Timeline) -> Counter[tuple[str, int]]:
    """How often each size of 1 MiB and more is asked for in each layer, forward and backward, in the last step."""
    timeline = unroll(timeline)
    last, inside = max(phase.step for phase in timeline.phases), False
    found: Counter[tuple[str, int]] = Counter()
    for event in timeline.events:
        if event.action == Action.PHASE:
            phase = timeline.phases[event.tag]
            inside = phase.step == last and phase.name != "eval"
        elif inside and event.action == Action.ALLOC and event.size_bytes >= MIB:
            found[_layer(timeline.tags[event.tag].label), event.size_bytes] += 1
    return found


def _layer(label: str) -> str:
    """The layer and the pass: the two do not draw the line between attention and MLP at the same operation."""
    return f"{label.partition(':')[0]}{': backward' if label.endswith(': backward') else ''}"


def differences(hand: Timeline, trace: Timeline) -> Iterator[str]:
    """Which sizes one of the two asks for more often, by part; layers that differ alike share a line."""
    ours, theirs = by_part(hand), by_part(trace)
    for who, found in (("by hand only", ours - theirs), ("traced only ", theirs - ours)):
        alike: dict[tuple[str, int, int], list[str]] = {}
        for (label, size), count in sorted(found.items(), key=lambda item: (item[0][0], -item[0][1])):
            layer = re.match(r"layers\.(\d+)", label)
            part = label if layer is None else label.replace(layer[0], "layers", 1)
            alike.setdefault((part, size, count), []).append("" if layer is None else layer[1])
        for (part, size, count), layers in alike.items():
            numbers = ", ".join(sorted(filter(None, layers), key=int))
            yield f"    {who} {count:3d} × {size / MIB:9.2f} MiB  {part}{f' {numbers}' if numbers else ''}"


def _since_5_20() -> bool:
    return tuple(map(int, version("transformers").split(".")[:2])) >= (5, 20)


def line(case: Case, *, blocks: bool) -> float | None:
    """Print one case; returns the difference of reserved memory, or None where the model cannot be traced."""
    hand = predict(case)
    allocated, reserved = peaks(case, hand)
    try:
        _, timeline = traced(case, case.measured["case"]["model"])
    except Exception as error:
        print(f"{case.name:40s} {allocated:8.0f} {reserved:8.0f}  not traced: {type(error).__name__}: {error}"[:200])
        return None
    other_allocated, other_reserved = peaks(case, timeline)
    measured = case.measured.get("peak_reserved_mib")
    beside = "" if measured is None else f"  measured {measured:8.0f} {100 * (other_reserved / measured - 1):+6.2f} %"
    common = 100 * alignment(last_step(hand), last_step(timeline))
    print(
        f"{case.name:40s} {allocated:8.0f} {reserved:8.0f}  traced {other_allocated:8.0f} {other_reserved:8.0f} "
        f"{100 * (other_reserved / reserved - 1):+6.2f} %  common {common:5.1f} %{beside}",
        flush=True,
    )
    if blocks:
        print("\n".join(differences(hand, timeline)))
    return other_reserved / reserved - 1


def main() -> None:
    """Compare all cases of a file."""
    import transformers

    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--only", default="")
    parser.add_argument("--blocks", action="store_true")
    arguments = parser.parse_args()
    print(f"transformers {transformers.__version__}; by hand: allocated, reserved; traced: the same, difference")
    errors = [
        found
        for case in map(_as_installed, _cases(arguments.file))
        if arguments.only in case.name and not case.run.kernels.liger
        if (found := line(case, blocks=arguments.blocks)) is not None
    ]
    if errors:
        worst, within = max(map(abs, errors)), sum(abs(error) <= 0.05 for error in errors)
        print(f"{within} of {len(errors)} within 5 %, worst {100 * worst:.2f} %")


def _cases(path: Path | None) -> list[Case]:
    if path is None:
        return cases()
    rows = [json.loads(row) for row in path.read_text().splitlines() if row.strip()]
    return [_case(row, path.parent) if "case" in row else _unmeasured(row, path.parent) for row in rows]


def _as_installed(case: Case) -> Case:
    """The case as the installed release of transformers would run it; its measured figures stay those of its own."""
    if not _since_5_20() or case.run.kernels.expert_masks == "none":
        return case
    return replace(case, run=case.run.changed(**SINCE_5_20), measured={"case": case.measured["case"]})


def _unmeasured(row: dict[str, Any], folder: Path) -> Case:
    case = _case({"name": row["name"], "case": row}, folder)
    return replace(case, run=case.run.changed(**SINCE_5_20))


if __name__ == "__main__":
    main()
