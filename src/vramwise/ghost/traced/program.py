"""Evaluates a recorded program for one batch: registers, shapes and dtypes instead of names and formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from vramwise.ghost.dtypes import BF16, BOOL, FP16, FP32, INT8, INT32, INT64, UINT8, DType

_TYPES = {
    "float32": FP32,
    "float16": FP16,
    "bfloat16": BF16,
    "int64": INT64,
    "int32": INT32,
    "int8": INT8,
    "uint8": UINT8,
    "bool": BOOL,
    # not modelled: replaced by types of the same width
    "float64": INT64,
    "complex64": INT64,
    "int16": FP16,
}

Shape = tuple[int, ...]
MARKS = ("del", "mask", "wants", "enter", "leave", "window")  # steps that make no tensor


class Result(NamedTuple):
    """A result of an op: a new tensor, or one in the memory of register `source`."""

    register: int
    source: int | None
    dtype: DType
    shape: Shape
    numel: int
    heads_first: bool


class Gradient(NamedTuple):
    """A gradient that a node returns.

    It is the received gradient ("same"), a view of it ("in"), made by a recorded step ("new"), or made without one
    ("own").
    """

    how: str
    place: int
    dtype: DType = FP32
    shape: Shape = ()
    heads_first: bool = False
    view: bool = False


class Back(NamedTuple):
    """The backward of an op: its edges, the saved tensors, the steps that make and free tensors, and its gradients."""

    edges: tuple[int | None, ...]
    saved: tuple[int, ...]
    steps: tuple[tuple[Any, ...], ...]
    gradients: tuple[Gradient | None, ...]
    received: tuple[bool | None, ...]
    is_view: bool


class Step(NamedTuple):
    """One instruction. `kind`: op, linear, attention, sdpa, embedding, dropout, or one of MARKS."""

    kind: str
    inputs: tuple[int, ...]
    results: tuple[Result, ...]
    flags: tuple[Any, ...]
    slots: tuple[int, ...]
    back: Back | None
    more: Mapping[str, Any]


class Program(NamedTuple):
    """Steps over registers. The registers are the given tensors, then the parameters, then what the steps make."""

    steps: tuple[Step, ...]
    given: int
    parameters: tuple[str, ...]
    registers: int
    result: int
    second_part: int  # the step at which the block's second part begins


class Recorded:
    """A program as recorded. There is one object for each kind of layer; blocks that share it do the same."""

    __slots__ = ("_rows", "half")

    def __init__(self, rows: Mapping[str, Any], half: DType) -> None:
        self._rows = rows
        self.half = half

    @property
    def parameters(self) -> Sequence[str]:
        """The names, within its layer, of the parameters that it uses."""
        found: Sequence[str] = self._rows["parameters"]
        return found

    @lru_cache(maxsize=64)  # noqa: B019 - objects of this class live as long as the process
    def at(self, rows: int, tokens: int) -> Program:
        """Return the program for a batch of this size."""
        return _worked_out(self._rows, rows, tokens, self.half)


def number(value: Any, rows: int, tokens: int) -> int:
    """Return a recorded number: the value itself, or the result of its formula for the batch."""
    if isinstance(value, int):
        return value
    _, k, d, by_rows, by_tokens, constant = value
    product = k * (rows if by_rows else 1) * (tokens if by_tokens else 1)
    return int(-(-product // d)) + int(constant)


def _worked_out(rows: Mapping[str, Any], batch: int, tokens: int, half: DType) -> Program:
    known: dict[str, int] = {}
    for name in (*rows["given"], *rows["parameters"]):
        known.setdefault(name, len(known))

    def register(name: str) -> int:
        return known.setdefault(name, len(known))

    def form(row: Sequence[Any]) -> tuple[DType, Shape]:
        dtype = _TYPES[row[0]]
        return half if dtype is BF16 else dtype, tuple([number(side, batch, tokens) for side in row[1]])

    def flags(row: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([item if isinstance(item, str) else number(item, batch, tokens) for item in row])

    def gradient(row: Sequence[Any] | None) -> Gradient | None:
        if row is None:
            return None
        if row[0] == "same":
            return Gradient("same", row[1])
        dtype, shape = form(row[2:4])
        return Gradient(row[0], row[1], dtype, shape, row[4], row[5])

    def back(row: Mapping[str, Any] | None, name: str) -> Back | None:
        if row is None:
            return None
        gradients = tuple([gradient(item) for item in row["g"]])
        handed = {item.place for item in gradients if item is not None and item.how == "new"}
        steps: list[tuple[Any, ...]] = []
        for item in row["b"]:
            if item[0] == "del":
                if item[1] not in handed:
                    steps.append(("del", item[1]))
            elif item[0] == "use":
                steps.append(("use", flags(item[1:])))
            else:
                steps.append(("new", *form(item[1:3]), flags(item[3:])))
        edges = tuple([None if item is None or item == "?" else register(item) for item in row["e"]])
        is_view = name.split(".")[0] in ("view", "_unsafe_view", "reshape", "_reshape_alias")
        return Back(edges, tuple(row["s"]), tuple(steps), gradients, tuple(row["q"]), is_view)

    steps = []
    for row in rows["steps"]:
        inputs = tuple([register(name) for name in row["i"]])
        if row["k"] in MARKS:
            steps.append(Step(row["k"], inputs, (), (), (), None, {}))
            continue
        results = []
        for name, source, dtype, shape, heads_first in row["o"]:
            kind, sides = form((dtype, shape))
            at = None if source is None else register(source)
            results.append(Result(register(name), at, kind, sides, prod(sides), heads_first))
        found = back(row.get("n"), row.get("f", ""))
        steps.append(Step(row["k"], inputs, tuple(results), flags(row["x"]), tuple(row.get("slots", ())), found, row))
    return Program(
        tuple(steps),
        len(rows["given"]),
        tuple(rows["parameters"]),
        len(known),
        register(rows["result"]),
        rows.get("second", len(steps)),
    )
