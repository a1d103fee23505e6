"""Failures whose text states the cause: dtypes, alignment, host memory, settings that fail late."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from vramwise.bundled import bundled_json
from vramwise.diagnosis.case import Case
from vramwise.diagnosis.evidence import Cause


class Known(NamedTuple):
    """The meaning of a failure text."""

    cause: str
    sentence: str
    confidence: float = 0.95


_DETAILS = (
    *("left", "right", "divisor", "shape", "optimizer", "required", "limit"),
    *("free", "total", "share", "wanted", "op"),
)


@cache
def _known() -> dict[str, Known]:
    """Return the contents of `known.json` by kind of symptom."""
    return {kind: Known(**row) for kind, row in bundled_json("known.json", __file__).items()}


def known_cause(case: Case) -> Cause | None:
    """Return the cause that a symptom's text states, or None."""
    symptom = case.symptom
    if symptom.kind in ("recompute-differs", "recompute-metadata", "recompute-count"):
        return _recompute(case)
    if symptom.kind == "dtype-not-implemented":
        return _not_implemented(case)
    known = _known().get(symptom.kind)
    if known is None:
        return None
    details = {name: symptom.details.get(name, "?") for name in _DETAILS}
    sentence = known.sentence.format(**details).replace(" (? and ?)", "").replace(" (?)", "")
    if symptom.kind == "fp8-alignment" and details["shape"] == "?":
        sentence = sentence.partition(", and a batch")[0]
    without_fp16 = symptom.kind == "mixed-operands" and "half" not in f"{details['left']} {details['right']}".lower()
    return Cause(
        id=known.cause,
        sentence=sentence,
        confidence=known.confidence,
        has_rule=symptom.kind != "fsdp2-mixed-dtypes" and not without_fp16,
        quotes=(symptom.quote,),
    )


def _recompute(case: Case) -> Cause:
    details = case.symptom.details
    shape = details.get("recomputed_shape", details.get("shape", "?"))
    saved, again = details.get("saved_dtype"), details.get("recomputed_dtype", details.get("dtype"))
    if shape.strip() == "0":
        return Cause(
            id="recompute-freed-weights",
            sentence=(
                "ZeRO-3 had already freed the weights that non-reentrant checkpointing needed to recompute (shape [0])"
            ),
            confidence=0.95,
            quotes=(case.symptom.quote,),
        )
    before = details.get("saved_shape", "?")
    differ = "?" not in (before, shape) and before != shape
    if case.symptom.kind == "recompute-count" or differ or (saved and saved == again):
        shapes = f" (shape [{before}], then [{shape}])" if differ else ""
        return Cause(
            id="recompute-changed",
            sentence=(
                f"the recomputed forward pass differed from the first{shapes}: it depends on something that changed "
                "in between, such as a growing cache or expert routing"
            ),
            confidence=0.85,
            quotes=(case.symptom.quote,),
        )
    if not (saved and again):
        return Cause(
            id="recompute-changed",
            sentence=(
                "the recomputed forward pass produced different tensors than the first; the log ends before it says "
                "whether shapes or dtypes differed"
            ),
            confidence=0.6,
            quotes=(case.symptom.quote,),
        )
    return Cause(
        id="recompute-dtype",
        sentence=(
            f"the recomputed forward pass ran in a different dtype than the first ({saved}, then {again}): autocast "
            "differed between them"
        ),
        confidence=0.93,
        quotes=(case.symptom.quote,),
    )


def _not_implemented(case: Case) -> Cause:
    """Return the cause of a missing kernel. GPU kernels mostly have "cuda" in their name."""
    op, dtype = case.symptom.details["op"], case.symptom.details["dtype"]
    if "cuda" in op.lower():
        where = "in this torch's CUDA build"
    elif dtype == "BFloat16" and case.card is not None and not case.card.bf16:
        where = f"on this card ({case.card.name}), which has no bf16"
    else:
        where = "on the CPU: part of the model is on the CPU"
    return Cause(
        id="dtype-not-implemented",
        sentence=f"the operation {op} is not implemented for {dtype} {where}",
        confidence=0.9,
        quotes=(case.symptom.quote,),
    )
