"""Element types: a name and a width. What autocast does with them is in `ops`, not here."""

from __future__ import annotations


class DType:
    """An element type. Compared by identity: there is one object a type."""

    __slots__ = ("floating", "name", "size")

    def __init__(self, name: str, size: int, *, floating: bool) -> None:
        self.name = name
        self.size = size
        self.floating = floating

    def __repr__(self) -> str:
        return self.name


BF16 = DType("bf16", 2, floating=True)
FP16 = DType("fp16", 2, floating=True)
FP32 = DType("fp32", 4, floating=True)
FP64 = DType("fp64", 8, floating=True)
FP8 = DType("fp8", 1, floating=True)
INT64 = DType("int64", 8, floating=False)
INT32 = DType("int32", 4, floating=False)
UINT8 = DType("uint8", 1, floating=False)
INT8 = DType("int8", 1, floating=False)
BOOL = DType("bool", 1, floating=False)

BY_NAME = {dtype.name: dtype for dtype in (BF16, FP16, FP32, INT64, INT32, UINT8, INT8, BOOL)}


def promote(left: DType, right: DType) -> DType:
    """Return the type of `left + right` for two tensors with dimensions: torch's promotion, for the types met here."""
    if left is right:
        return left
    if left.floating != right.floating:
        return left if left.floating else right
    if left.floating:
        return FP32
    return left if left.size >= right.size else right
