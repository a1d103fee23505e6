"""Records one forward and backward pass on fake tensors: every op, what autograd saves, and what its backward makes.

`Recorder` works below autograd and sees every aten op with its results. A weak reference on each tensor shows when
Python and C++ free it. Saved tensors are replaced by numbers while the graph is built. Autograd therefore keeps nothing
alive, and the recorded lifetimes are those of the code's own variables. The pass then runs backward, and the tensors
that each node makes are recorded for that node.

Linear layers, attention, embeddings and dropout are recorded by name only (`opaque.py`): the ghost run has its own
ops for them, with adapters and quantised weights.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vramwise.models.recorder.described import (
    Naming,
    besides,
    heads_first,
    storage_of,
    tensors_in,
    type_of,
    writes_in_place,
)

Raw = dict[str, Any]

# ops whose results take no new memory on a GPU, and ops that only query a tensor
_SILENT = ("prim.device", "aten.sym_", "aten.is_", "aten.lift_fresh", "aten.detach")


class Recorder(Naming, TorchDispatchMode):  # type: ignore[misc] # torch has no types here
    """The instructions of one pass, as plain data."""

    def __init__(self, experts: frozenset[str] = frozenset()) -> None:
        """`experts`: names of weights that an adapter may replace by a copy, which autograd then saves."""
        TorchDispatchMode.__init__(self)
        Naming.__init__(self)
        self._experts = experts
        self.amp = False  # whether the pass runs under autocast
        self.wide: frozenset[str] = frozenset()  # names of weights whose linear layers return fp32
        self.instructions: list[Raw] = []
        self.paused = 0
        self.asked = 0
        self._roots: dict[str, str] = {}  # by tensor: the tensor that owns its memory
        self._packed: list[tuple[str, torch.Tensor | None, tuple[Any, ...]]] = []
        self._unresolved: list[tuple[Raw, list[weakref.ref[torch.Tensor]]]] = []
        self._nodes: dict[int, tuple[Any, Raw]] = {}
        self._results: dict[tuple[int, int], str] = {}  # by node and slot: the last tensor that it made
        self._steps: list[list[Any]] | None = None  # of the node whose backward is running
        self._local: dict[str, int] = {}
        self.in_backward = False
        self._done: set[int] = set()
        self._current: Any = None  # the node whose backward is running
        self._made: dict[int, int] = {}  # by storage: its position among the tensors that the node made
        self._asked: list[int] = []  # numbers of saved tensors that were asked for

    def _freed(self, name: str) -> None:
        if self.in_backward:
            if self._steps is not None and name in self._local:
                self._steps.append(["del", self._local[name]])
        else:
            self.instructions.append({"k": "del", "i": [name]})

    # forward

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default:
            # the code reads a value, which a fake tensor does not have: it gets False or 0
            self.asked += 1
            return False if args[0].dtype is torch.bool else 0
        if self.paused or str(func).startswith(_SILENT):
            out = func(*args, **kwargs)
            if not self.paused and isinstance(out, torch.Tensor):
                self._alias_silently(out)
            return out
        self.resolve()
        inputs = tensors_in((args, kwargs))
        if self.in_backward:
            return self._backward_op(func, inputs, args, kwargs)
        into = self._written_view(func, inputs)
        if into is not None:
            inputs.append(into)
        names = [self.name(item) for item in inputs]
        edges = self.edges_of(inputs)
        sources = {storage_of(item): name for item, name in zip(inputs, names, strict=True)}
        out = func(*args, **kwargs)
        made = tensors_in(out) if into is None else [into]
        raw: Raw = {"k": "op", "f": str(func).removeprefix("aten."), "i": names, "o": []}
        for item in made:
            raw["o"].append(self.described(item, sources.get(storage_of(item))))
        raw["x"] = besides(str(func), args, inputs, made)
        self.write(raw, made, edges)
        return out

    def _written_view(self, func: Any, inputs: list[torch.Tensor]) -> torch.Tensor | None:
        """Return the base tensor if an op writes into a view of it, else None. Autograd gives the base a new node."""
        if not str(func).partition(".")[2].partition(".")[0].endswith("_") or not inputs or not inputs[0]._is_view():
            return None
        return inputs[0]._base

    def edges_of(self, inputs: list[torch.Tensor]) -> list[tuple[Any, int, torch.Tensor | None]]:
        """Return the autograd node, its output number and the leaf (or None) of each tensor.

        Recording is paused, because reading `grad_fn` of a view may rebuild its node.
        """
        self.paused += 1
        try:
            return [
                (item.grad_fn, item.output_nr, item if item.is_leaf and item.requires_grad else None) for item in inputs
            ]
        finally:
            self.paused -= 1

    def _alias_silently(self, out: torch.Tensor) -> None:
        if not self.in_backward:
            source = self._storages.get(storage_of(out))
            if source is not None and id(out) not in self._names:
                raw: Raw = {"k": "op", "f": "alias", "i": [source], "o": [self.described(out, source)], "x": []}
                self.write(raw, [out], [(None, 0, None)])

    def described(self, tensor: torch.Tensor, source: str | None) -> list[Any]:
        """Return a tensor's name, the tensor that it shares memory with, dtype, shape, and `heads_first`."""
        name = self.name(tensor)
        if source is None:
            self._storages[storage_of(tensor)] = name
        self._roots[name] = name if source is None else self._roots.get(source, source)
        return [name, source, type_of(tensor), list(tensor.shape), heads_first(tensor)]

    def write(self, raw: Raw, made: list[torch.Tensor], edges: list[Any]) -> None:
        """Record an instruction. `resolve` looks up its node later, when autograd has made it."""
        raw["_edges"] = edges
        self.instructions.append(raw)
        self._unresolved.append((raw, [weakref.ref(item) for item in made]))

    def resolve(self) -> None:
        """Look up the nodes that autograd has made for the instructions recorded so far."""
        waiting, self._unresolved = self._unresolved, []
        for raw, made in waiting:
            edges = raw.pop("_edges")
            alive = [item for ref in made if (item := ref()) is not None]
            found = self.edges_of(alive)
            node = next((one for one, _, _ in found if one is not None), None)
            if node is not None:
                self._node(raw, node, edges)
            for (one, number, _), item in zip(found, alive, strict=True):
                if one is not None:
                    self._results[id(one), number] = self.name(item)
            raw["slots"] = [number for _, number, _ in found] + [0] * (len(made) - len(alive))

    def _node(self, raw: Raw, node: Any, edges: list[Any]) -> None:
        if id(node) in self._nodes:  # a view whose graph autograd has rewritten
            return
        found = [self._edge(function, slot, edges, raw["i"]) for function, slot in node.next_functions]
        if hasattr(node, "saved_tensors"):  # the model's own autograd function: the op is the last of several
            raw["i"] = list(dict.fromkeys([*raw["i"], *[name for name in found if name], *self._saved_by(node)]))
        raw["n"] = {"e": found, "s": [] if raw["k"] != "op" else self._saved(node, raw), "b": [], "g": [], "q": []}
        self._nodes[id(node)] = (node, raw["n"])
        node.register_hook(partial(self._finished, id(node)))

    def _edge(self, function: Any, slot: int, edges: list[Any], names: list[str]) -> str | None:
        if function is None:
            return None
        for (known, number, leaf), name in zip(edges, names, strict=True):
            if leaf is not None and getattr(function, "variable", None) is leaf:
                return name
            if known is not None and known is function and number == slot:
                return name
        leaf = getattr(function, "variable", None)
        if leaf is not None:
            return self._names.get(id(leaf), "?")
        return self._results.get((id(function), slot), "?")

    def pack(self, tensor: torch.Tensor) -> int:
        """Return a number for autograd to save instead of the tensor."""
        owner = self._storages.get(storage_of(tensor), "?")
        leaf = tensor if tensor.is_leaf and tensor.requires_grad else None
        form = (tuple(tensor.shape), tensor.stride(), tensor.dtype)
        self._packed.append((owner, leaf, form))
        return len(self._packed) - 1

    def unpack(self, number: int) -> torch.Tensor:
        """Return the saved leaf itself, or a new tensor with the saved tensor's shape, strides and dtype."""
        _, leaf, (shape, stride, dtype) = self._packed[number]
        self._asked.append(number)
        if leaf is not None:
            return leaf
        self.paused += 1
        try:
            return torch.empty_strided(shape, stride, dtype=dtype)
        finally:
            self.paused -= 1

    def _saved(self, node: Any, raw: Raw) -> list[int]:
        """Return what the node saved, as positions among the op's inputs, or −1, −2… among its results.

        Weights are left out, except those of experts.
        """
        owners = self._saved_by(node)
        places = {self._roots.get(item[0]): -1 - place for place, item in enumerate(raw["o"])}
        places |= {self._roots.get(name, name): place for place, name in enumerate(raw["i"])}
        return [places[owner] for owner in owners if owner in places and (owner[0] == "t" or owner in self._experts)]

    def _saved_by(self, node: Any) -> list[str]:
        """Return the names of the tensors whose memory a node saved."""
        self._asked = []
        self.paused += 1
        try:
            for name in dir(node):
                if name.startswith("_saved_") or name == "saved_tensors":
                    getattr(node, name)
        finally:
            self.paused -= 1
        return list(dict.fromkeys(self._packed[number][0] for number in self._asked))

    # backward

    def _begin(self, node: Any) -> None:
        known = self._nodes.get(id(node))
        self._steps = None if known is None or id(node) in self._done else known[1]["b"]
        self._local = {}

    def _backward_op(self, func: Any, inputs: list[torch.Tensor], args: Any, kwargs: Any) -> Any:
        node = torch._C._current_autograd_node()
        if node is not self._current:
            self._current = node
            self._begin(node)
        sources = {storage_of(item) for item in inputs}
        out = func(*args, **kwargs)
        if self._steps is None:
            return out
        for item in tensors_in(out):
            if storage_of(item) in sources:
                continue
            flags = besides(str(func), args, inputs, [item])
            if writes_in_place(str(func)) and storage_of(inputs[0]) in self._made:
                self._replaced(inputs[0], item, flags)
                continue
            name = self._new(item)
            number = len(self._local)
            self._local[name] = number
            self._made[storage_of(item)] = number
            self._steps.append(["new", type_of(item), list(item.shape), *flags])
        return out

    def _replaced(self, before: torch.Tensor, after: torch.Tensor, flags: list[Any]) -> None:
        """Record `after` in place of `before`: on a GPU, the op writes into `before` instead of making a copy."""
        assert self._steps is not None
        number = self._made[storage_of(before)]
        self._local.pop(self._names.get(id(before), ""), None)
        self._local[self._new(after)] = number
        self._made[storage_of(after)] = number
        if flags:
            self._steps.append(["use", *flags])

    def _finished(self, key: int, given: Any, received: Any) -> None:
        """Called when a node's backward is done. Records where each gradient that it returns comes from.

        A gradient is the received one itself ("same"), a view of it ("in"), made by the node ("new"), or other
        memory ("own").
        """
        node, raw = self._nodes[key]
        if key in self._done:
            return
        self._done.add(key)
        if node is not self._current:
            self._current, self._steps, self._local = node, None, {}
        got = {storage_of(item): place for place, item in enumerate(received) if item is not None}
        same = {id(item): place for place, item in enumerate(received) if item is not None}
        for item in given:
            if item is None:
                raw["g"].append(None)
                continue
            form = [type_of(item), list(item.shape), heads_first(item), bool(item._is_view())]
            if id(item) in same:
                raw["g"].append(["same", same[id(item)]])
            elif storage_of(item) in got:
                raw["g"].append(["in", got[storage_of(item)], *form])
            elif storage_of(item) in self._made and self._steps is not None:
                raw["g"].append(["new", self._made[storage_of(item)], *form])
            else:
                raw["g"].append(["own", 0, *form])
        raw["q"] = [None if item is None else heads_first(item) for item in received]
        self._steps = None
        self._made = {}
