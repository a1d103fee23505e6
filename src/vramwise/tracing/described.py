"""Describes tensors for the recorder, and the extra memory that a GPU kernel uses besides an op's results."""

from __future__ import annotations

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
