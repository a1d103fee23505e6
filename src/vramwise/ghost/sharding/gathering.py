"""Which weights are gathered together, around which part of a model: FSDP's units, ZeRO 3's layers, host blocks."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.ghost.model.causal_lm import Block
from vramwise.ghost.model.linear import Linear, Projection
from vramwise.ghost.model.norms import Norm
from vramwise.ghost.sharding import GatheredBlock
from vramwise.ghost.sharding.fsdp_units import LoneHead, Unit, UnitBlock, UnitHead, UnitNorm, Units
from vramwise.ghost.sharding.zero_blocks import Fetched, FetchedHead, FirstBlock, Layers
from vramwise.ghost.sharding.zero_engine import ZeroEngine
from vramwise.ghost.sharding.zero_flat import FlatEngine
from vramwise.ghost.sharding.zero_spread import SpreadEngine
from vramwise.ghost.weights import Weights
from vramwise.models.families import layout_of

_HEAD = "lm_head"


class Gathering:
    """Puts what gathers around the parts of one model. Where nothing is spread or on the host, parts stay as they are.

    `root` goes before the blocks: the first of them has to know the embeddings' unit. `units`: those of a model whose
    weights these are too, so that what one pass has gathered the other finds.
    """

    def __init__(self, weights: Weights, units: Units | None = None) -> None:
        self.weights = weights
        layout, model = layout_of(weights.model), weights.model
        self._layers = f"{layout.inside(model, layout.layers)}."
        self._embedding = f"{layout.inside(model, layout.embedding)}."
        self._tied = model.tie_word_embeddings
        self._adapted = weights.run.adapter.kind is not None
        self.units = units or (Units(weights.sharding) if weights.sharding.fsdp is not None else None)
        self.zero, self._fetching = _zero(weights)

    @property
    def exchange(self) -> Units | ZeroEngine | None:
        """What has to be told of a run's forward and backward passes."""
        return self.units or self.zero

    def root(self, norm: Norm) -> Norm:
        """What is in no block: one FSDP unit, or the embeddings by themselves where the head does not share them."""
        units = self.units
        if self._fetching is not None:
            embedding = self.weights.by_name[f"{self._embedding}weight"]
            coordinator = self._fetching.coordinator
            coordinator.first = self._fetching.module(embedding)
            # transformers' two models, and PEFT's two around them
            coordinator.around = 2 if self.weights.run.adapter.kind is None else 4
            return self._fetching.fetched(norm)
        if units is None:
            return norm
        if units.fsdp.one_unit:
            units.first = units.last = self._unit(units, "whole model", lambda _: True)
            return norm
        if units.fsdp.one_root or self._tied:
            # accelerate names the last norm first
            last = "" if units.fsdp.one_root else self._embedding
            units.first = units.last = self._unit(units, "root", self._outside, last=last)
            return norm
        units.first = self._unit(units, "embeddings", lambda name: name.startswith(self._embedding))
        if self._adapted:
            # accelerate does not find the last norm inside of PEFT's model: it stays with the whole model
            units.last = self._unit(units, "head", lambda name: self._after_blocks(name) and name.startswith(_HEAD))
            units.rest = self._unit(units, "root", lambda name: self._after_blocks(name) and not name.startswith(_HEAD))
            return norm
        units.last = self._unit(units, "last norm and head", self._after_blocks)
        return UnitNorm(norm, units.last)

    def block(self, layer: int, block: Block) -> Block:
        """The block, with its weights gathered around each use where they are spread over ranks or kept on the host."""
        start = f"{self._layers}{layer}."
        if self.units is not None and self.units.fsdp.one_unit:
            return block
        if self.units is not None:
            unit = self._unit(self.units, f"layers.{layer}", lambda name: name.startswith(start))
            if layer == 0 and self.units.first is not self.units.last:
                unit.following = self.units.first
            return UnitBlock(block, unit)
        if self._fetching is not None:
            self._fetching.wrap_inside(block)
            return FirstBlock(block, self._fetching.coordinator) if layer == 0 else block
        sharding = self.weights.sharding
        if not sharding.weights and not sharding.host_weights:
            return block
        nbytes = sum(p.numel * p.dtype.size for name, p in self.weights.by_name.items() if name.startswith(start))
        nbytes += sum(size for name, size in self.weights.packed_bytes.items() if name.startswith(start))
        return GatheredBlock(block, nbytes, f"layers.{layer}: gathered weights") if nbytes else block

    def head(self, head: Projection) -> Projection:
        """Return the head, where it is of a unit of its own, or fetches its weight."""
        if self._fetching is not None:
            module, coordinator = self._fetching.module(head), self._fetching.coordinator
            if isinstance(head, Linear):
                return FetchedHead(head, module, self._fetching.spread(head.weight), coordinator)
            return Fetched(head, module, coordinator)
        units = self.units
        if (
            units is None
            or units.last is None
            or units.fsdp.one_root
            or units.fsdp.one_unit
            or not isinstance(head, Linear)
        ):
            return head
        return LoneHead(head, units.last) if units.rest is not None else UnitHead(head, units.last)

    def _outside(self, name: str) -> bool:
        return not name.startswith(self._layers)

    def _after_blocks(self, name: str) -> bool:
        return self._outside(name) and not name.startswith(self._embedding)

    def _unit(self, units: Units, label: str, belongs: Callable[[str], bool], last: str = "") -> Unit:
        """Return FSDP unit of all weights whose names belong to it, adapters among them; `last`: names that end it."""
        if label in units.by_label:
            return units.by_label[label]
        weights = self.weights
        held = [p for name, p in weights.by_name.items() if belongs(name)]
        held += [p for p in weights.replaced if belongs(p.name)]
        for name, pair in weights.adapters.items():
            if belongs(f"{name}."):
                held += pair
        held += [p for name, p in weights.magnitudes.items() if belongs(f"{name}.")]
        held = list({id(p): p for p in held}.values())
        held.sort(key=lambda p: bool(last) and p.name.startswith(last))
        sizes = [p.local * units.ranks * p.dtype.size for p in held]
        packed = [size for name, size in weights.packed_bytes.items() if belongs(name)]
        return units.make(label, sizes + packed, held)


def _zero(weights: Weights) -> tuple[ZeroEngine | None, Layers | None]:
    """ZeRO's engine, and at stage 3 what makes layers fetch their weights."""
    zero = weights.sharding.zero
    if zero is None:
        return None, None
    if zero.stage < 3:
        return FlatEngine(weights, zero), None
    engine = SpreadEngine(weights, zero)
    return engine, Layers(engine.coordinator)
