"""Calls that are recorded by name only, because the ghost run has its own ops for them.

Autograd sees the stand-in `Opaque`: its result has the right shape, and its gradients have the shape of the inputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from vramwise.models.recorder.recorder import Recorder

_PRODUCTS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)


class Opaque(torch.autograd.Function):  # type: ignore[misc] # torch has no types here
    """A function with one result that passes a gradient to every input that needs one."""

    @staticmethod
    def forward(ctx: Any, recorder: Recorder, make: Any, *tensors: torch.Tensor | None) -> torch.Tensor:
        """Return a result without values."""
        ctx.recorder = recorder
        ctx.forms = [
            None if one is None or not one.is_floating_point() else (one.shape, one.stride(), one.dtype)
            for one in tensors
        ]
        recorder.paused += 1
        try:
            made: torch.Tensor = make()
        finally:
            recorder.paused -= 1
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Return gradients without values."""
        ctx.recorder.paused += 1
        try:
            found = [
                torch.empty_strided(*_dense(form[0], form[1]), dtype=form[2]) if form and wanted else None
                for form, wanted in zip(ctx.forms, ctx.needs_input_grad[2:], strict=True)
            ]
        finally:
            ctx.recorder.paused -= 1
        return (None, None, *found)


def _dense(shape: Any, stride: Any) -> tuple[list[int], list[int]]:
    """Return the shape, and dense strides in the same order, as in `empty_like`."""
    order = sorted(range(len(shape)), key=lambda place: (-stride[place], place))
    found, size = [0] * len(shape), 1
    for place in reversed(order):
        found[place] = size
        size *= max(int(shape[place]), 1)
    return [int(side) for side in shape], found


class Calls(TorchFunctionMode):  # type: ignore[misc]
    """Intercepts linear layers, embeddings, dropout and direct calls of attention."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recorder = self.recorder
        if not recorder.paused and not recorder.in_backward:
            if func is functional.linear and _kept(recorder, args, kwargs):
                return linear(recorder, *args, **kwargs)
            if func in _PRODUCTS and (weight := _transposed_weight(recorder, args)) is not None:
                return linear(recorder, args[0], weight)
            if func is functional.embedding:
                return embedding(recorder, *args, **kwargs)
            if func in (functional.dropout, torch.dropout):
                return dropout(recorder, *args, **kwargs)
            if func is functional.scaled_dot_product_attention:
                return attention_call(recorder, *args, **kwargs)
        return func(*args, **kwargs)


def _kept(recorder: Recorder, args: Any, kwargs: Any) -> bool:
    """Return whether a linear layer is recorded by name: its weight is a parameter and autocast is as in the pass."""
    if torch.is_autocast_enabled("cpu") != recorder.amp:
        return False
    weight = kwargs.get("weight", args[1] if len(args) > 1 else None)
    return isinstance(weight, torch.nn.Parameter) and recorder.name(weight).startswith("p:")


def _transposed_weight(recorder: Recorder, args: Any) -> torch.nn.Parameter | None:
    """Return the weight of a linear layer without bias that is written as `x @ weight.T`, else None."""
    if len(args) != 2 or not args[1]._is_view():
        return None
    other, weight = args[1], args[1]._base
    if not isinstance(weight, torch.nn.Parameter) or other.shape != weight.shape[::-1] or weight.dim() != 2:
        return None
    name = recorder.name(weight)
    alone = not recorder.keeps(f"{name.removesuffix('.weight')}.bias")
    return weight if alone and _kept(recorder, (args[0], weight), {}) else None


def call(recorder: Recorder, kind: str, make: Any, tensors: list[torch.Tensor | None], **more: Any) -> torch.Tensor:
    """Record a call by name and return its stand-in."""
    recorder.resolve()
    given = [one for one in tensors if one is not None]
    names = [recorder.name(one) for one in given]
    edges = recorder.edges_of(given)
    out: torch.Tensor = Opaque.apply(recorder, make, *tensors)
    recorder.write({"k": kind, "i": names, "o": [recorder.described(out, None)], "x": [], **more}, [out], edges)
    return out


def linear(recorder: Recorder, x: Any, weight: Any, bias: Any = None) -> torch.Tensor:
    """Record a linear layer on a parameter."""

    def make() -> torch.Tensor:
        low = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        wide = recorder.name(weight) in recorder.wide
        return torch.empty((*x.shape[:-1], weight.shape[0]), dtype=torch.float32 if wide else low)

    return call(recorder, "linear", make, [x, weight, bias])


def embedding(recorder: Recorder, ids: Any, weight: Any, *_: Any, **__: Any) -> torch.Tensor:
    """Record an embedding lookup."""
    return call(
        recorder, "embedding", lambda: torch.empty((*ids.shape, weight.shape[1]), dtype=weight.dtype), [ids, weight]
    )


def dropout(recorder: Recorder, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Record dropout. Returns `x` itself if dropout is inactive."""
    if not training or not p:
        return x
    return call(recorder, "dropout", lambda: torch.empty_like(x), [x], rate=p)


def attention(
    recorder: Recorder,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    window: int | None,
    softcap: Any,
    sinks: Any,
    rate: float,
    *,
    grouped: bool = True,
) -> torch.Tensor:
    """Record a call through transformers' attention interface. The result has tokens before heads.

    `grouped`, for calls with a mask: whether torch handles unequal head counts, as when the mask is only a bias.
    """

    def make() -> torch.Tensor:
        batch, heads, tokens, _ = query.shape
        low = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype
        return torch.empty((batch, tokens, heads, value.shape[-1]), dtype=low)

    tensors = [query, key, value]
    if mask is not None:
        tensors.append(mask)
    if sinks is not None:
        tensors.append(sinks)
    return call(
        recorder, "attention", make, tensors, window=window, softcap=softcap is not None, masked=mask is not None,
        sinks=sinks is not None, dropout=float(rate), **({"grouped": grouped} if mask is not None else {}),
    )  # fmt: skip


def attention_call(
    recorder: Recorder, query: Any, key: Any, value: Any, attn_mask: Any = None, *_: Any, **more: Any
) -> Any:
    """Record a direct call of `scaled_dot_product_attention`. The result has the memory order of the queries.

    If head counts differ and `enable_gqa` is not set, torch uses plain products, whose result is contiguous.
    """
    grouped = bool(more.get("enable_gqa"))
    products = not grouped and query.shape[1] != key.shape[1]

    def make() -> torch.Tensor:
        shape = (*query.shape[:-1], value.shape[-1])
        low = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype
        return (
            torch.empty(shape, dtype=low)
            if products
            else torch.empty_strided(*_dense(shape, query.stride()), dtype=low)
        )

    return call(recorder, "sdpa", make, [query, key, value, attn_mask], masked=attn_mask is not None, grouped=grouped)
