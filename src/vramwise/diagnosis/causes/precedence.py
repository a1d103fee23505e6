"""What was asked for, and why it was refused: two true answers to one failure, put in order.

That a request was for logits says what it was; steps with the same logits had passed, so it does not say why this one
failed. A cause that does (the evaluation's batch, the optimizer's new state, memory kept or held by others, fragments)
goes first, takes what was asked for into its evidence, and the other follows behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vramwise.diagnosis.case import Case
from vramwise.diagnosis.evidence import Cause
from vramwise.units import readable

# A cause that is less sure than this explains nothing away.
_SURE = 0.7
# Says what was asked for → the kind of product its size is.
_WHAT = {"logits": "logits", "eager-attention": "scores", "oversized-batch": "", "impossible-request": ""}
# Why now: something is different from the steps that passed.
_NOW = frozenset(("eval-batch", "after-eval", "optimizer-state", "save-gather", "leak"))
# Why at all: without this the memory would have been enough, at whatever step.
_AT_ALL = frozenset(("fragmentation", "other-process"))
_BEHIND = 0.9


def in_order(case: Case, causes: Sequence[Cause]) -> list[Cause]:
    """The causes, the likeliest first; what was asked for behind why it was refused."""
    ranked = sorted(causes, key=lambda cause: -cause.confidence)
    saying_why = [cause for cause in ranked if _says_why(case, cause)]
    if not saying_why:
        return ranked
    # What is kept step by step fills the card in any arrangement: fragments only decide at which step.
    why = next((cause for cause in saying_why if cause.id == "leak"), saying_why[0])
    follows = {*_WHAT, "fragmentation"} if why.id == "leak" else set(_WHAT)
    what = [cause for cause in ranked if cause.id in _WHAT]
    told = replace(why, evidence=(*why.evidence, *_asked_for(case, what[:1])))
    rest = [
        replace(cause, confidence=min(cause.confidence, why.confidence * _BEHIND)) if cause.id in follows else cause
        for cause in ranked
        if cause is not why
    ]
    return sorted([told, *rest], key=lambda cause: -cause.confidence)


def _says_why(case: Case, cause: Cause) -> bool:
    if cause.confidence < _SURE:
        return False
    if cause.id == "long-tail":  # where the config says that lengths vary
        return case.run is not None
    passed = case.steps_passed is None or case.steps_passed > 0 or cause.id != "eval-batch"
    return cause.id in _AT_ALL or (cause.id in _NOW and (passed or case.larger_eval_batch))


def _asked_for(case: Case, what: Sequence[Cause]) -> list[str]:
    for cause in what:
        product = next((found for found in case.factors if found.kind == _WHAT[cause.id]), None)
        if product is not None:
            return [f"what was requested: {cause.id}, {readable(case.requested)} = {product.arithmetic}"]
        if _WHAT[cause.id]:
            return [f"what was requested: {cause.id} ({', '.join(cause.evidence)})"]
    return []
