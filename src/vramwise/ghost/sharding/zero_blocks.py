"""Layers of a model under ZeRO 3: each fetches its weights before it runs, forward and backward, and releases them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from vramwise.ghost.model.attention import Attention, Tables
from vramwise.ghost.model.fused_lora import FusedLoraLinear, FusedLoraMlp, FusedLoraQkv
from vramwise.ghost.model.linear import Linear, Linear4bit, LoraLinear
from vramwise.ghost.model.mlp import GatedMlp
from vramwise.ghost.model.moe import MoeMlp
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.ops.fused_lora import Fused
from vramwise.ghost.sharding.zero_fetch import NO_WEIGHTS, Coordinator, Module, Spread
from vramwise.ghost.tape import Grads, Node, Parameter, Tape, Tensor

Block = Callable[..., Tensor]
_MODELS = ("vramwise.ghost.model", Fused.__module__)
# read their weights without calling the layers that hold them: gathered together, as long as they run
_KERNELS = (FusedLoraLinear, FusedLoraMlp, FusedLoraQkv)


class Layers:
    """Knows every spread weight of a model, and makes layers fetch theirs."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator

    def module(self, *parts: object) -> Module:
        """Return a module of all weights that these things hold."""
        found: dict[int, Spread] = {}
        for part in parts:
            for spread in self._spread_in(part):
                found[id(spread)] = spread
        return Module(list(found.values()))

    def _spread_in(self, thing: object) -> Iterator[Spread]:
        if isinstance(thing, Parameter):
            yield self.spread(thing)
        elif isinstance(thing, Linear4bit):
            yield self._packed(thing)
            yield from self._spread_in(thing.bias)
        elif isinstance(thing, Fused):
            yield from [self._packed(thing)] if thing.weight is None else self._spread_in(thing.weight)
            yield from self._spread_in((thing.down, thing.up, thing.magnitude))
        elif isinstance(thing, (list, tuple)):
            for item in thing:
                yield from self._spread_in(item)
        elif type(thing).__module__.startswith(_MODELS):
            for name in _attributes(thing):
                yield from self._spread_in(getattr(thing, name, None))

    def spread(self, parameter: Parameter) -> Spread:
        """Return the weight, which tied layers share."""
        known = self.coordinator.all
        if id(parameter) not in known:
            known[id(parameter)] = Spread(parameter.name, parameter.numel, parameter)
        return known[id(parameter)]

    def _packed(self, layer: Linear4bit | Fused) -> Spread:
        known = self.coordinator.all
        if id(layer) not in known:
            rows, columns = layer.shape
            known[id(layer)] = Spread("4-bit weights", -(-rows * columns // 2), None)
        return known[id(layer)]

    def wrap_inside(self, thing: object) -> None:
        """Put a fetching layer in the place of each layer that something is made of."""
        for name in _attributes(thing):
            part = getattr(thing, name, None)
            if not type(part).__module__.startswith(_MODELS) or isinstance(part, Fetched):
                continue
            if self._is_layer(part):
                before = _CALLED.get((_kind(thing), name), (0, 0))
                object.__setattr__(thing, name, self.fetched(part, before))
            else:
                self.wrap_inside(part)

    def fetched(self, part: Any, before: tuple[int, int] = (0, 0)) -> Fetched:
        """A layer that fetches its weights; `before`: modules without weights that are called before it, and before
        its backward."""
        calls = self._calls(part)
        forward, backward = before
        return Fetched(
            part,
            self.module(part),
            self.coordinator,
            forward=[NO_WEIGHTS] * forward + calls,
            backward=[NO_WEIGHTS] * backward + [*calls[:1], *reversed(calls[1:])],
        )

    def _calls(self, part: Any) -> list[Module]:
        """Return the modules that a layer is called as: an adapter's layer, its base, its dropout, its two matrices."""
        if not isinstance(part, LoraLinear):
            return [self.module(part)]
        down, up = self.module(part.down), self.module(part.up)
        return [NO_WEIGHTS, self.module(part.base), NO_WEIGHTS, down, up]

    def _is_layer(self, part: Any) -> bool:
        """Mixtures of experts are fetched as a whole; else what holds a weight of its own."""
        if isinstance(part, (MoeMlp, Linear4bit, *_KERNELS)) or hasattr(part, "base"):
            return True
        return isinstance(getattr(part, "weight", None), Parameter)


# Modules of transformers that hold no weight of their own are called too, and each call gathers ahead: how many before
# which layer, and before its backward. The block before its first norm, the attention, the feed-forward part, its
# activation.
_CALLED = {
    ("block", "norm1"): (1, 0),
    ("attention", "q"): (1, 0),
    ("attention", "o"): (0, 1),
    ("mlp", "gate"): (1, 1),
    ("mlp", "up"): (1, 0),
    ("mlp", "down"): (0, 2),
}


def _kind(thing: object) -> str:
    return "attention" if isinstance(thing, Attention) else "mlp" if isinstance(thing, GatedMlp) else "block"


def _attributes(thing: object) -> list[str]:
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    return names or list(getattr(thing, "__dict__", ()))


def _fetch_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    coordinator, modules = node.extra
    for module in modules:
        coordinator.fetch(t, module, forward=False)
    return (grad,)


def _release_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    coordinator, modules, _held = node.extra
    for module in modules:
        coordinator.release(module)
    return (grad,)


def _marked(t: Tape, x: Tensor, backward: Any, extra: object, saved: tuple[Tensor, ...] = ()) -> Tensor:
    """Return the same tensor; its gradient passes through `backward`."""
    if not t.grad_enabled or x.node is None:
        return x
    marked = without_node(x)
    marked.node = t.node(backward, (x,), saved)
    marked.node.extra = extra
    return marked


class Fetched:
    """A layer that fetches its weights before it runs, and before its backward.

    DeepSpeed puts a linear function of its own in the place of torch's, which saves its input even for a frozen weight.
    bitsandbytes keeps a view of a 4-bit weight in its graph: released or not, the gathered bytes stay until that goes.
    """

    __slots__ = ("backward", "coordinator", "forward", "inner", "keeps_input", "module")

    def __init__(
        self,
        inner: Any,
        module: Module,
        coordinator: Coordinator,
        *,
        forward: list[Module] | None = None,
        backward: list[Module] | None = None,
    ) -> None:
        self.inner = inner
        self.module = module
        self.coordinator = coordinator
        self.forward = forward or [module]
        self.backward = backward or [module]
        self.keeps_input = isinstance(getattr(inner, "base", inner), Linear)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, t: Tape, x: Tensor) -> Any:
        """Return the hidden states after the block."""
        for module in self.forward:
            self.coordinator.fetch(t, module, forward=True)
        packed = [spread.whole for spread in self.module.spread if spread.parameter is None]
        if packed and t.grad_enabled and not t.in_backward:
            t.graph_holds += packed
        x = _marked(
            t,
            x,
            _release_backward,
            (self.coordinator, self.backward, packed),
            (without_node(x),) if self.keeps_input else (),
        )
        del packed
        out = self.inner(t, x)
        for module in self.forward:
            self.coordinator.release(module)
        extra = (self.coordinator, self.backward)
        if isinstance(out, Tensor):
            return _marked(t, out, _fetch_backward, extra)
        return [_marked(t, one, _fetch_backward, extra) for one in out]


class FetchedHead(Linear):
    """The head. Fused losses take its weight without calling it: then it stays for as long as the model runs."""

    __slots__ = ("coordinator", "inner", "spread")

    def __init__(self, head: Linear, module: Module, spread: Spread, coordinator: Coordinator) -> None:
        self.inner = Fetched(head, module, coordinator)
        self.spread = spread
        self.coordinator = coordinator

    @property
    def weight(self) -> Parameter:  # type: ignore[override]
        """The weight, gathered."""
        self.coordinator.use_outside(self.spread)
        return self.inner.inner.weight  # type: ignore[no-any-return]

    @property
    def bias(self) -> Parameter | None:  # type: ignore[override]
        """The bias."""
        return self.inner.inner.bias  # type: ignore[no-any-return]

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return self.inner(t, x)  # type: ignore[no-any-return]


class FirstBlock:
    """The first block: embeddings have been looked up when it begins. They come back for their backward, even where
    nothing but their output wants a gradient."""

    __slots__ = ("block", "coordinator")

    def __init__(self, block: Block, coordinator: Coordinator) -> None:
        self.block = block
        self.coordinator = coordinator

    def __call__(self, t: Tape, hidden: Tensor, *, tables: Tables | None, mask: Tensor | None) -> Tensor:
        """Return the hidden states after the block."""
        if not t.in_backward:
            self.coordinator.leave_first(t)
        if self.coordinator.first is not None:
            hidden = _marked(t, hidden, _fetch_backward, (self.coordinator, [self.coordinator.first]))
        return self.block(t, hidden, tables=tables, mask=mask)
