"""Describes and names the tensors of a pass for the recorder, and detects when each of them is freed.

Also says which extra memory a GPU kernel uses besides an op's results.
"""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import torch

_PRODUCTS = ("aten.mm.", "aten.bmm.", "aten.baddbmm.", "aten.convolution")
_SUMS = ("aten.sum.", "aten.mean.", "aten.var", "aten.std", "aten.norm.", "aten.amax.", "aten.linalg_vector_norm")
# On a GPU, backward steps write into a zero tensor that they have just made. A dispatch mode counts as a tensor
# subclass, so under it torch uses the copying ops instead (`isTensorSubclassLike` in FunctionsManual.cpp).
_WRITES_IN_PLACE = (
    "aten.index_put.",
    "aten.index_add.",
    "aten.scatter.",
    "aten.scatter_add.",
    "aten.masked_scatter.",
)


def storage_of(tensor: torch.Tensor) -> int:
    """Return an id of the tensor's storage, equal for tensors that share memory."""
    return int(tensor.untyped_storage()._cdata)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return all tensors in nested arguments."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [item for one in value for item in tensors_in(one)]
    return []


def type_of(tensor: torch.Tensor) -> str:
    """Return the name of the tensor's dtype, without `torch.`."""
    return str(tensor.dtype).removeprefix("torch.")


def heads_first(tensor: torch.Tensor) -> bool:
    """Return whether a 4-D tensor is laid out in memory with heads before tokens."""
    return bool(tensor.dim() == 4 and tensor.stride(1) > tensor.stride(2) and tensor.shape[1] > 1)


def writes_in_place(name: str) -> bool:
    """Return whether this op, in a backward step, writes into its first argument on a GPU."""
    return name.startswith(_WRITES_IN_PLACE)


def besides(name: str, args: Any, inputs: list[torch.Tensor], made: list[torch.Tensor]) -> list[Any]:
    """Return the kind of extra memory that a GPU kernel uses besides its results, with its sizes. Empty if none.

    Examples: the workspace of a matrix product, the staging buffer of a split sum, the buffers of a sort.
    """
    if name.startswith(_PRODUCTS):
        return ["mm"]
    if name.startswith("aten.addmm."):
        return ["addmm"]
    if name.startswith("aten._grouped_mm."):
        return ["grouped", max(item.shape[0] for item in inputs if item.dim() < 2 or item.dim() == 3)]
    if name.startswith("aten.sort.") and inputs:
        return ["sort", inputs[0].numel()]
    if name.startswith(("aten.index_put.", "aten.index_put_.", "aten._index_put_impl_.")):
        rows = max((item.numel() for item in tensors_in(args[1])), default=0)
        return ["accumulate", rows] if len(args) > 3 and args[3] else []
    if name.startswith(_SUMS) and inputs and made:
        along = inputs[0].shape[-1:] != made[0].shape[-1:]
        return ["sum", inputs[0].numel() // max(made[0].numel(), 1), int(along)]
    if name.startswith(("aten._softmax_backward_data", "aten._log_softmax_backward_data")):
        return ["twice"] if "_softmax_backward_data" in name and "log" not in name else []
    return []


class Naming:
    """Names tensors in the order in which they appear, and calls `_freed` when one is freed."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._storages: dict[int, str] = {}
        self._users: Counter[int] = Counter()  # number of tensors in each storage
        self._watched: dict[str, weakref.ref[torch.Tensor]] = {}
        self._kept: list[torch.Tensor] = []  # parameters and buffers, kept alive so that their ids are not reused
        self._kept_names: set[str] = set()
        self.count = 0

    def _freed(self, name: str) -> None:
        """Called when the tensor of this name is freed."""
        raise NotImplementedError

    def keep(self, tensor: torch.Tensor, name: str) -> None:
        """Register a tensor that exists before and after the pass, such as a parameter or buffer."""
        self._kept.append(tensor)
        self._kept_names.add(name)
        self._users[storage_of(tensor)] += 1
        self._names[id(tensor)] = name
        self._storages[storage_of(tensor)] = name

    def keeps(self, name: str) -> bool:
        """Return whether a parameter or buffer has this name."""
        return name in self._kept_names

    def name(self, tensor: torch.Tensor) -> str:
        """Return the name of a tensor. A tensor not seen before gets a new name."""
        found = self._names.get(id(tensor))
        if found is not None:
            return found
        return self._new(tensor)

    def _new(self, tensor: torch.Tensor) -> str:
        name = f"t{self.count}"
        self.count += 1
        key, storage = id(tensor), storage_of(tensor)
        self._names[key] = name
        self._users[storage] += 1

        def gone(_: object) -> None:
            if self._names.get(key) == name:
                del self._names[key]
            self._users[storage] -= 1
            if not self._users[storage]:  # another storage may reuse this id
                del self._users[storage]
                self._storages.pop(storage, None)
            self._watched.pop(name, None)
            self._freed(name)

        self._watched[name] = weakref.ref(tensor, gone)
        return name
