"""Cuts the instructions of a pass into programs: before the layers, one a kind of layer, after them, after the head."""

from __future__ import annotations

from typing import Any

from vramwise.tracing.passes import Cut, Traced
from vramwise.tracing.recorder import Raw

Program = dict[str, Any]
MARKS = ("del", "mask", "wants", "enter", "leave")  # steps that make nothing


class Lost(Exception):  # noqa: N818 - not a fault of the program: the model cannot be traced
    """A gradient's way could not be followed."""


def programs(traced: Traced, layers: str, kinds: dict[int, int], head: str) -> dict[str, Any]:
    """All programs of a pass. `kinds`: the number of the kind that each traced layer stands for."""
    cuts, rows = traced.cuts, traced.instructions
    lost = [row for row in rows if row.get("n") and "?" in row["n"]["e"]]
    if lost:
        raise Lost(f"its code uses an autograd function of its own, before {lost[0].get('f', lost[0]['k'])}")
    at = max(place for place, row in enumerate(rows) if row["k"] == "linear" and row["i"][1] == f"p:{head}")
    outer = [name for cut in cuts for _, name in cut.given]
    known = {traced.ids, *_made(rows[: cuts[0].begin]), *[cut.hidden for cut in cuts]}
    if any(name[0] == "t" and name not in known for name in outer):
        raise Lost("a layer is given what another layer made")
    before = _program(rows[: cuts[0].begin], [traced.ids], cuts[0].hidden, "")
    before["shown"] = [name for name in dict.fromkeys(outer) if name in _made(before["steps"])]
    before["held"] = _held(rows, cuts[-1].end, _made(before["steps"]))
    after = _program(rows[cuts[-1].end : at], [cuts[-1].result], rows[at]["i"][0], "")
    return {
        "before": before,
        "layers": [_layer(cut, rows, layers) for cut in sorted(cuts, key=lambda cut: kinds[cut.layer])],
        "after": after,
        "tail": [row["f"] for row in rows[at + 1 :] if row["k"] == "op"],
    }


def _layer(cut: Cut, rows: list[Raw], layers: str) -> Program:
    given = [cut.hidden, *[name for _, name in cut.given if name != cut.hidden]]
    found = _program(rows[cut.begin : cut.end], list(dict.fromkeys(given)), cut.result, f"{layers}.{cut.layer}.")
    calls = [place for place, row in enumerate(found["steps"]) if row["k"] in ("attention", "sdpa")]
    if calls:
        after = [place for place, row in enumerate(found["steps"]) if row["k"] == "linear" and place > calls[-1]]
        found["second"] = after[0] + 1 if after else len(found["steps"])
    windows = [row.get("window") for row in found["steps"] if row["k"] == "attention"]
    found["window"] = next((window for window in windows if window), None)
    return found


def _held(rows: list[Raw], end: int, made: set[str]) -> list[str]:
    """What the code's variables hold until after the layers, which end there, in the order they let go of it.

    What goes right there is the input of the last layer that ran: layers that stand for it would have let it go.
    """
    while end < len(rows) and rows[end]["k"] == "del":
        end += 1
    gone = [row["i"][0] for row in rows[:end] if row["k"] == "del"]
    late = [row["i"][0] for row in rows[end:] if row["k"] == "del"]
    return [name for name in dict.fromkeys(late) if name in made.difference(gone)]


def _made(steps: list[Raw]) -> set[str]:
    return {item[0] for row in steps if row["k"] not in MARKS for item in row["o"]}


def _program(rows: list[Raw], given: list[str], result: str, start: str) -> Program:
    known = {*given, *_made(rows)}
    steps = [_relative(row, start) for row in rows if row["k"] != "del" or row["i"][0] in known]
    used = [name for row in steps for name in row["i"] if name[:2] in ("p:", "b:")]
    return {"steps": steps, "given": given, "parameters": list(dict.fromkeys(used)), "result": result}


def _relative(row: Raw, start: str) -> Raw:
    """Parameters of the layer itself by their names within it: `p:@.mlp.up_proj.weight`."""

    def named(name: str | None) -> str | None:
        if start and name is not None and name[2:].startswith(start):
            return f"{name[:2]}@.{name[2 + len(start) :]}"
        return name

    found = {**row, "i": [named(name) for name in row["i"]]}
    if "o" in row:
        found["o"] = [[name, named(source), *more] for name, source, *more in row["o"]]
    if row.get("n"):
        found["n"] = {**row["n"], "e": [named(name) for name in row["n"]["e"]]}
    return found
