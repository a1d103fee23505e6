"""Splits the instructions of a pass into programs.

There is one before the layers, one for each kind of layer, one after the layers, and the ops after the head.
"""

from __future__ import annotations

from typing import Any

from vramwise.models.recorder.cutting import Cut, Lost
from vramwise.models.recorder.passes import Traced
from vramwise.models.recorder.recorder import Raw

Program = dict[str, Any]
MARKS = ("del", "mask", "wants", "enter", "leave", "window")  # steps that make no tensor


def programs(traced: Traced, layers: str, kinds: dict[int, int], head: str) -> dict[str, Any]:
    """Return all programs of a pass. `kinds` maps each traced layer to the number of the kind that it represents.

    Raises Lost if the pass cannot be split.
    """
    cuts, rows = traced.cuts, traced.instructions
    lost = [row for row in rows if row.get("n") and "?" in row["n"]["e"]]
    if lost:
        raise Lost(f"its code uses an autograd function of its own, before {lost[0].get('f', lost[0]['k'])}")
    at = max(place for place, row in enumerate(rows) if row["k"] == "linear" and row["i"][1] == f"p:{head}")
    before = _program(rows[: cuts[0].begin], [traced.ids], cuts[0].hidden, "")
    made = _made(before["steps"])
    exchange = Exchange(rows, cuts, {traced.ids, *made})
    found = [_layer(cut, rows, layers, exchange) for cut in sorted(cuts, key=lambda cut: kinds[cut.layer])]
    outer = [name for one in found for part in (one, one.get("between", {"given": []})) for name in part["given"]]
    before["shown"] = [name for name in dict.fromkeys(outer) if name in made]
    before["held"] = _held(rows, cuts[-1].end, made)
    after = _program(rows[cuts[-1].end : at], [cuts[-1].result], rows[at]["i"][0], "")
    return {
        "before": before,
        "layers": found,
        "after": after,
        "tail": [row["f"] for row in rows[at + 1 :] if row["k"] == "op"],
    }


class Exchange:
    """Tensors that layers receive besides the hidden states and the tensors made before all layers."""

    def __init__(self, rows: list[Raw], cuts: list[Cut], known: set[str]) -> None:
        self._rows = rows
        # tensors made before all layers that may need a gradient: a checkpoint passes it on for positional arguments
        self._wanting = {item[0] for row in rows[: cuts[0].begin] if row.get("n") for item in row["o"]}
        self._known = known
        self._makers = {name: cut.layer for cut in cuts for name in _made(rows[cut.begin : cut.end])}
        self._keys = {name: key for cut in cuts for key, name in cut.others}  # what layers return
        used = [self._taken(cut) for cut in cuts]
        self._taken_by = {cut.layer: taken for cut, taken in zip(cuts, used, strict=True)}
        self._left = {name: key for taken in used for name, key in taken.items()}
        self._returned = {key for key in self._left.values() if key.startswith("out.")}

    def known(self, name: str) -> bool:
        """Return whether a tensor existed before all layers."""
        return name in self._known

    def _taken(self, cut: Cut) -> dict[str, str]:
        """Return the tensors of earlier layers that a layer uses, each with the key under which it is stored."""
        body = self._rows[cut.start : cut.end]
        used = {name for row in body for name in row["i"]}
        return {
            name: self._keys.get(name, path)
            for path, name in cut.given
            if name != cut.hidden and name in used and self._makers.get(name, cut.layer) != cut.layer
        }

    def of(self, cut: Cut, found: Program) -> Program:
        """Return the program of a layer, with the tensors that it takes from other layers and leaves for them.

        Raises Lost if the exchange between layers cannot be expressed.
        """
        between = self._rows[cut.start : cut.begin]
        made = _made(between)
        taken = self._taken_by[cut.layer]
        positional = {name for path, name in cut.given if path.isdigit()}
        direct = positional.intersection({*taken, *self._wanting})
        handed = [name for name in found["given"][1:] if name in made or name in direct]
        if made.intersection(found["given"]):
            kept = [row for row in between if row["k"] != "del"]
            outside = [name for row in kept for name in row["i"] if name[0] == "t" and name not in made]
            given = [cut.handed, *[name for name in dict.fromkeys(outside) if name != cut.handed]]
            if not self._known.issuperset(given[1:]):
                raise Lost("what its layers are given grows from layer to layer")
            found["between"] = _program(kept, given, cut.hidden, "")
        lost = {*found["given"][1:]}.difference(self._known, made, taken)
        if any(name[0] == "t" for name in lost):
            raise Lost("its layers are given what several earlier layers made")
        takes = [[key, name] for name, key in taken.items() if name not in handed]
        mine = {name for name, maker in self._makers.items() if maker == cut.layer}
        leaves = [[key, name] for name, key in self._left.items() if name in mine]
        leaves += [[key, name] for key, name in cut.others if key in self._returned and name not in self._left]
        if handed or takes or leaves:
            sources = [[name, taken[name]] for name in handed if name in taken]
            found |= {"handed": handed, "sources": sources, "takes": takes, "leaves": leaves}
        return found


def _layer(cut: Cut, rows: list[Raw], layers: str, exchange: Exchange) -> Program:
    given = [cut.hidden, *[name for _, name in cut.given if name != cut.hidden and name[0] == "t"]]
    body = rows[cut.begin : cut.end]
    used = {name for row in body for name in row["i"]}
    given = [name for name in dict.fromkeys(given) if name == cut.hidden or name in used or exchange.known(name)]
    found = _program(body, given, cut.result, f"{layers}.{cut.layer}.")
    calls = [place for place, row in enumerate(found["steps"]) if row["k"] in ("attention", "sdpa", "window")]
    if calls:
        after = [place for place, row in enumerate(found["steps"]) if row["k"] == "linear" and place > calls[-1]]
        found["second"] = after[0] + 1 if after else len(found["steps"])
    windows = [row.get("window") for row in found["steps"] if row["k"] in ("attention", "window")]
    found["window"] = next((window for window in windows if window), None)
    return exchange.of(cut, found)


def _held(rows: list[Raw], end: int, made: set[str]) -> list[str]:
    """Return the tensors that the code's variables hold beyond the end of the layers, in the order they are freed.

    A tensor freed right at `end` does not count: it is the input of the last layer that ran, which is freed earlier
    when all layers run.
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
    """Return the instruction with the layer's own parameters renamed relative to it: `p:@.mlp.up_proj.weight`."""

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
