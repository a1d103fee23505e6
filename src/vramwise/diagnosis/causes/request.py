"""Causes of an out-of-memory by what was requested: logits or attention scores, from size and traceback."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.diagnosis.case import LATE_STEP, Case
from vramwise.diagnosis.evidence import Cause
from vramwise.diagnosis.read.phases import in_eager_attention, in_loss
from vramwise.units import readable

# Qwen2-VL's vision tower passes its block-diagonal mask by this name, over all patches at once.
_VISION_MASK = "attention_mask, dropout_p=0.0)"


def logits(case: Case) -> Iterator[Cause]:
    """Yield logits if the request was for tokens × vocabulary: the logits, their fp32 copy, or their gradient."""
    if not _computing(case):
        return
    frames = in_loss(case.symptom.frames)
    found = case.as_large_as("logits")
    ghost = next((match for match in case.matches if match.category == "logits"), None)
    shot = case.snapshot is not None and case.snapshot.failing_category == "logits"
    votes = frames + shot + (found is not None and found.exact) + (ghost is not None)
    if not votes and found is None:
        return
    confidence = (0.5, 0.8, 0.93, 0.95, 0.95)[votes] if votes or found is None or found.exact else 0.45
    evidence = []
    if case.symptom.step is not None and case.symptom.step > LATE_STEP:
        confidence *= 0.85
        evidence.append(f"but {case.symptom.step - 1} steps with the same logits had passed")
    if frames:
        evidence.append("the traceback ends in the loss")
    if shot:
        evidence.append(f"snapshot: the failed request came from {case.snapshot.failing_place}")  # type: ignore[union-attr]
    evidence += case.arithmetic("logits")
    if ghost is not None:
        evidence.append(
            f"in the simulation, a request of {readable(case.requested)} is for {ghost.label} ({ghost.phase})"
        )
    yield Cause(
        id="logits",
        sentence="the logits of one micro-batch (tokens × vocabulary) did not fit",
        confidence=confidence,
        evidence=tuple(evidence),
    )


def eager_attention(case: Case) -> Iterator[Cause]:
    """Yield eager-attention if the request was for attention scores (batch × heads × length²)."""
    if not _computing(case):
        return
    frames = in_eager_attention(case.symptom.frames)
    found = case.as_large_as("scores")
    if not frames and found is None:
        return
    confidence = 0.93 if frames and found else 0.85 if frames else 0.7
    if case.run is not None and case.run.kernels.attn_implementation != "eager":
        confidence *= 0.8 if frames else 0.3
    evidence = ["the traceback ends in eager attention"] if frames else []
    evidence += case.arithmetic("scores")
    yield Cause(
        id="eager-attention",
        sentence="eager attention stores all scores (batch × heads × length²), and they did not fit",
        confidence=confidence,
        evidence=tuple(evidence),
    )


def masked_attention(case: Case) -> Iterator[Cause]:
    """Yield masked-attention if a large request was made by attention with a dense mask, or by a vision tower's."""
    capacity = case.capacity
    if not capacity or case.requested < capacity // 10 or not _computing(case):
        return
    last = case.symptom.frames[-3:]
    fused = any("scaled_dot_product_attention" in f"{frame.code} {frame.function}" for frame in last)
    if not fused and not (case.vision and case.symptom.inner in ("attention", "vision")):
        return
    seen = case.vision or any(_VISION_MASK in frame.code for frame in last)
    what = (
        "the vision tower's attention, over all patches of the images,"
        if case.vision
        else ("attention with a dense mask (as over the patches of images)")
    )
    yield Cause(
        id="masked-attention",
        sentence=(
            f"{what} fell back to a path that stores all scores (heads × length²): one request of "
            f"{readable(case.requested)}"
        ),
        confidence=0.86 if seen else 0.8,
        has_rule=False,
        evidence=("the traceback ends in scaled_dot_product_attention with a mask",) if fused else (),
    )


def _computing(case: Case) -> bool:
    """Whether the model was computing, or may have been; loading, saving and the optimizer request parameters."""
    return case.symptom.phase not in ("load", "resume", "save", "optimizer", "clip")
