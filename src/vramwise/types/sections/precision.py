"""The dtypes a run computes and stores in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from vramwise.types.sections import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """`compute`: the dtype of matrix products; `weights_dtype`: the dtype that unquantised weights are stored in."""

    neutral_why: ClassVar[str] = "no mixed precision"

    compute: Literal["bf16", "fp16", "fp32", "fp8"] = field(metadata=setting("fp32", flat="precision", compared=False))
    # one scale a tensor or a row, in torchao's words; "rowwise_with_gw_hp": gradients of weights stay in 16 bits
    fp8_scaling: str = field(metadata=setting("tensorwise", rare=True, compared=False))
    weights_dtype: Literal["bf16", "fp16", "fp32"] = field(metadata=setting("fp32", phrase="weights in"))
    # the trainer refuses fp8 on older cards; None: it does not check
    refuses_fp8_below: tuple[int, int] | None = field(metadata=setting(None, rare=True))
    precision_by_card: bool = field(metadata=setting(False, compared=False))  # bf16 if the card supports it, else fp16
    # False: pure bfloat16/float16 without AMP; under ZeRO the engine casts the model instead
    autocast: bool = field(metadata=setting(False, compared=False))
    # norms, embeddings and head stay in fp32
    fp32_embeddings: bool = field(metadata=setting(True, phrase="fp32 embeddings"))

    @property
    def half(self) -> Literal["bf16", "fp16"] | None:
        """The dtype that autocast casts to: bf16 in fp8 runs too. None: there is no autocast."""
        compute = "bf16" if self.compute == "fp8" else self.compute
        return compute if self.autocast and compute != "fp32" else None
