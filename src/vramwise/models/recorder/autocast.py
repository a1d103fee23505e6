"""CUDA's autocast rules for CPU tensors: the ops that autocast runs in fp32 on CUDA but not on the CPU.

A CPU-only build of torch cannot run autograd on fake CUDA tensors, so passes run on fake CPU tensors. Products and
attention are on both lists already. Source: ATen/autocast_mode.h (AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE) of
torch 2.13.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

_IN_FP32 = [
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "log1p",
    "reciprocal",
    "rsqrt",
    "softplus",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "pow.Scalar",
    "layer_norm",
    "rms_norm",
    "native_layer_norm",
    "group_norm",
    "cosine_similarity",
    "dist",
    "renorm",
    "logsumexp",
    "sinh",
    "cosh",
    "tan",
    "acos",
    "asin",
    "erfinv",
]
_DTYPE_FP32 = [
    "sum",
    "sum.dim_IntList",
    "prod",
    "prod.dim_int",
    "softmax.int",
    "log_softmax.int",
    "cumsum",
    "cumprod",
    "linalg_vector_norm",
]
_LOW = (torch.bfloat16, torch.float16)


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in _LOW:
        return value.float()
    if isinstance(value, list | tuple):
        return type(value)(_wide(item) for item in value)
    return value


def _outside() -> Any:
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))


def _in_fp32(function: Any) -> Any:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _outside():
            return function(*[_wide(one) for one in args], **{key: _wide(one) for key, one in kwargs.items()})

    return kernel


def _dtype_fp32(function: Any) -> Any:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _outside():
            if args[0].dtype in _LOW and kwargs.get("dtype") is None:
                places = [item.name for item in function._schema.arguments]
                if "dtype" in places and len(args) <= places.index("dtype"):
                    kwargs["dtype"] = torch.float32
            return function(*args, **kwargs)

    return kernel


_libraries: list[Any] = []


def follow_cuda() -> None:
    """Replace the CPU's autocast rules in this process. Later calls have no effect."""
    if _libraries:
        return
    library = torch.library.Library("aten", "IMPL")
    _libraries.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in _IN_FP32:
            library.impl(name, _in_fp32(_overload(name)), "AutocastCPU")
        for name in _DTYPE_FP32:
            library.impl(name, _dtype_fp32(_overload(name)), "AutocastCPU")
