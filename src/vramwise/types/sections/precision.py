"""The dtypes a run computes and stores in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """`compute`: the dtype of matrix products; `weights_dtype`: the dtype that unquantised weights are stored in."""

    compute: Literal["bf16", "fp16", "fp32", "fp8"] = field(metadata={"flat": "precision"})
    weights_dtype: Literal["bf16", "fp16", "fp32"]
    refuses_fp8_below: tuple[int, int] | None  # the trainer refuses fp8 on older cards; None: it does not check
    precision_by_card: bool  # bf16 if the card supports it, else fp16
    autocast: bool  # False: pure bfloat16/float16 without AMP; under ZeRO the engine casts the model instead
    fp32_embeddings: bool  # norms, embeddings and head stay in fp32


NEUTRAL = Precision(
    compute="fp32",
    weights_dtype="fp32",
    refuses_fp8_below=None,
    precision_by_card=False,
    autocast=False,
    fp32_embeddings=True,
)
NEUTRAL_WHY = "no mixed precision"
