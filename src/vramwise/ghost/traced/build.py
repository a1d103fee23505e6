"""Builds a model that runs as recorded from a trace and the loaded weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from vramwise.errors import VramwiseError
from vramwise.ghost.build_layers import projection
from vramwise.ghost.dtypes import BF16, FP16, FP32, DType
from vramwise.ghost.model.linear import Linear, Projection
from vramwise.ghost.tape import Tensor
from vramwise.ghost.traced.body import MASK, NO_EXCHANGE, Between, Exchange, TracedBody, TracedPart
from vramwise.ghost.traced.folding import Adapter
from vramwise.ghost.traced.program import Recorded
from vramwise.ghost.weights import Weights
from vramwise.types.model import Trace

if TYPE_CHECKING:
    from vramwise.ghost.build import Builder

_NOTHING = Tensor(None, (), 0, BF16)  # a buffer, which takes no memory in a step


def mode_of(weights: Weights, trace: Trace) -> str:
    """Return the mode that a run needs in its trace: the dtype of its weights, exceptions in fp32, and autocast."""
    precision = weights.run.precision
    if precision.weights_dtype == "fp32":
        words = ["fp32"]
    else:
        norms = [weights.get(name) for name, _, kind, _ in trace.parameters if kind == "norm"]
        table = weights.by_name[f"{trace.embedding}.weight"]
        words = ["bf16"]
        if any(norm is not None and norm.dtype is FP32 for norm in norms):
            words.append("fp32 norms")
        if table.dtype is FP32:
            words.append("fp32 tables")
    if precision.half is not None:
        words.append("autocast")
    return ", ".join(words)


@lru_cache(maxsize=128)
def _recorded(trace: Trace, mode: str, way: str, part: str, kind: int, half: DType) -> Recorded:
    """Return a program: "before" or "after" the layers, of a kind of "layers", or "between" two of them."""
    rows = trace.modes[mode][way]
    if part == "between":
        return Recorded(rows["layers"][kind]["between"], half)
    return Recorded(rows[part][kind] if part == "layers" else rows[part], half)


class _Parts:
    """Makes the parts of one model."""

    def __init__(self, builder: Builder, trace: Trace) -> None:
        self.builder = builder
        self.trace = trace
        self.mode = mode_of(builder.weights, trace)
        if self.mode not in trace.modes:
            raise VramwiseError(
                f"the trace of {builder.model.model_type} has no pass for weights in {self.mode}: trace it again"
            )
        weights = builder.weights
        # DoRA on a quantised base returns fp32 under autocast
        self.wide = any(f"{name}.weight" in weights.shapes for name in weights.magnitudes)
        self.half = FP16 if "fp16" in (builder.run.precision.compute, builder.run.precision.weights_dtype) else BF16

    def part(self, part: str, kind: int, start: str, label: str, number: int | None = None, **more: Any) -> TracedPart:
        """Return one part, with its own weights under the prefix `start`.

        `number`: the index of its entry in `shown`, if it is not `kind`.
        """
        trained, frozen, experts, wide = [
            _recorded(self.trace, self.mode, way, part, kind, self.half) if way in self.trace.modes[self.mode] else None
            for way in ("all", "frozen", "experts", "wide")
        ]
        assert trained is not None
        assert frozen is not None
        if wide is not None and part == "layers" and start == f"{self.trace.layers}.0.":
            wide = _recorded(self.trace, self.mode, "wide", part, self._first(kind), self.half)
        names = trained.parameters
        return TracedPart(
            label=label,
            kind=kind if number is None else number,
            trained=trained,
            frozen=frozen,
            experts=experts,
            wide=wide if self.wide else None,
            parameters=tuple([self._weight(name, start) for name in names]),
            projections=tuple([self._projection(name, start) for name in names]),
            adapters=tuple([self._adapter(name, start) for name in names]),
            **more,
        )

    def block(self, layer: int, kind: int) -> TracedPart:
        """Return the part of one layer."""
        start, rows = f"{self.trace.layers}.{layer}.", self.layers[kind]
        places = {name: place for place, name in enumerate(rows["given"])}
        taken = [(key, places[name]) for key, name in rows.get("takes", ())]
        left = rows.get("leaves", ())
        exchange = NO_EXCHANGE
        if taken or left or rows.get("handed"):
            known = _registers(rows, _recorded(self.trace, self.mode, "all", "layers", kind, self.half))
            exchange = Exchange(
                handed=tuple([places[name] for name in rows["handed"]]),
                takes=tuple(taken),
                leaves=tuple([(key, known[name]) for key, name in left]),
            )
        kernel = self.builder.attentions.kernel(start, layer)
        return self.part("layers", kind, start, f"layers.{layer}", kernel=kernel, exchange=exchange)

    def between(self, layer: int, kind: int) -> Between | None:
        """Return what runs before one layer, or None if the layer is handed nothing and nothing runs."""
        rows = self.layers[kind]
        if not rows.get("handed") and "between" not in rows:
            return None
        part = None
        known: Mapping[str, int] = {rows["given"][0]: 0}
        if "between" in rows:
            part = self.part("between", kind, "", "", number=len(self.layers) + kind)
            known = _registers(rows["between"], part.trained)
        left = dict(rows["sources"])
        shown = {name: place for place, name in enumerate(rows["given"][1:])}
        results: list[tuple[str, Any]] = [("made", known[rows["given"][0]])]
        for name in rows["handed"]:
            if name in left:
                results.append(("left", left[name]))
            else:
                results.append(("made", known[name]) if name in known else ("shown", shown[name]))
        return Between(label=f"layers.{layer}", part=part, kind=kind, results=tuple(results))

    @property
    def layers(self) -> Sequence[Mapping[str, Any]]:
        """The programs of all kinds of layers, as recorded with gradients for all weights."""
        found: Sequence[Mapping[str, Any]] = self.trace.modes[self.mode]["all"]["layers"]
        return found

    def _first(self, kind: int) -> int:
        """Return the kind recorded for the first layer, which gets bf16 embeddings while later layers get fp32."""
        apart = max(self.trace.kinds) + 1
        return apart if apart < len(self.trace.modes[self.mode]["wide"]["layers"]) else kind

    def _weight(self, name: str, start: str) -> Tensor | None:
        if name.startswith("b:"):
            return MASK if name == "b:mask" else _NOTHING
        return self.builder.weights.get(_full(name, start))

    def _adapter(self, name: str, start: str) -> Adapter | None:
        full = _full(name, start)
        return self.builder.weights.adapters.get(full) if full in _experts(self.trace) else None

    def _projection(self, name: str, start: str) -> Projection | None:
        full, weights = _full(name, start), self.builder.weights
        if full in _linears(self.trace):
            return projection(weights, full.removesuffix(".weight"))
        weight = weights.get(full)  # a router, which is not a linear module
        if weight is None or len(weight.shape) != 2:
            return None
        return Linear(weight, weights.get(f"{full.rpartition('.')[0]}.bias"))


@lru_cache(maxsize=64)
def _linears(trace: Trace) -> frozenset[str]:
    return frozenset(name for name, _, kind, _ in trace.parameters if kind in ("linear", "conv1d"))


@lru_cache(maxsize=64)
def _experts(trace: Trace) -> frozenset[str]:
    return frozenset(name for name, _, kind, _ in trace.parameters if kind == "experts")


def _full(name: str, start: str) -> str:
    return name[2:].replace("@.", start, 1) if name[2:].startswith("@.") else name[2:]


def _registers(rows: Mapping[str, Any], recorded: Recorded) -> Mapping[str, int]:
    """Return the register of each tensor of a program, by name."""
    program = recorded.at(1, 64)  # registers have the same numbers for every batch
    known = {name: place for place, name in enumerate(dict.fromkeys([*rows["given"], *rows["parameters"]]))}
    for row, step in zip(rows["steps"], program.steps, strict=True):
        for item, result in zip(row.get("o", ()), step.results, strict=True):
            known[item[0]] = result.register
    return known


def traced_body(builder: Builder, trace: Trace) -> TracedBody:
    """Return the model without its head. Raises VramwiseError if the trace does not support the run's attention."""
    if trace.eager and "flash" in builder.run.kernels.attn_implementation:
        raise VramwiseError(
            f"the trace of {builder.model.model_type} has attention as its code writes it out, not flash attention"
        )
    parts = _Parts(builder, trace)
    run, gathering = builder.run, builder.gathering
    batch: list[int] = []
    norm = gathering.root(parts.part("after", 0, "", "", batch=batch))
    blocks = [gathering.block(layer, parts.block(layer, kind)) for layer, kind in enumerate(trace.kinds)]
    kinds, windows = builder.windows()
    start = parts.part("before", 0, "", "")
    rows = trace.modes[parts.mode]["all"]
    known = _registers(rows["before"], start.trained)
    between = [layer.get("between", {"given": [""]}) for layer in rows["layers"]]
    return TracedBody(
        embed=builder.weights.by_name[f"{trace.embedding}.weight"],
        blocks=blocks,
        norm=norm,
        rotary_dim=0,
        attention="eager" if trace.eager else run.kernels.attn_implementation,
        checkpoint=builder.checkpoint(),
        input_grads=builder.input_grads,
        windows=windows,
        tables_by_product=run.kernels.rotary_by_product,
        kinds=kinds,
        packed=run.shapes.packing_rows != "none",
        packed_eval=run.evaluation.eval_sample_packing,
        trained=builder.trained_blocks(),
        masked=not (run.kernels.attn_implementation == "sdpa" and builder.attentions.varlen()),
        start=start,
        always_masked=trace.always_masked,
        shown=tuple([tuple([known.get(name) for name in part["given"][1:]]) for part in (*rows["layers"], *between)]),
        held=tuple([known[name] for name in rows["before"]["held"]]),
        batch=batch,
        between=tuple([parts.between(layer, kind) for layer, kind in enumerate(trace.kinds)]),
    )
