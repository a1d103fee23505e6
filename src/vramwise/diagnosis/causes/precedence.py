"""Order causes: what was requested, and why the request failed, are two true answers to one failure.

A request for logits says what was requested. If earlier steps had the same logits, it does not say why this one failed.
A cause that does (the evaluation batch, new optimizer state, leaked memory, other processes, fragmentation) goes first,
with what was requested in its evidence; the other ranks behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vramwise.diagnosis.case import Case
from vramwise.diagnosis.evidence import Cause
from vramwise.units import readable

# A less certain cause is not moved ahead of others.
_SURE = 0.7
# Causes that say what was requested → the kind of factors that matches.
_WHAT = {"logits": "logits", "eager-attention": "scores", "oversized-batch": "", "impossible-request": ""}
# Why now: something differs from the steps that passed.
_NOW = frozenset(("eval-batch", "after-eval", "optimizer-state", "save-gather", "leak"))
# Why at all: without this the memory would have been enough at any step.
_AT_ALL = frozenset(("fragmentation", "other-process"))
_BEHIND = 0.9


def in_order(case: Case, causes: Sequence[Cause]) -> list[Cause]:
    """Return the causes, likeliest first, with what was requested behind why it failed."""
    ranked = sorted(causes, key=lambda cause: -cause.confidence)
    saying_why = [cause for cause in ranked if _says_why(case, cause)]
    if not saying_why:
        return ranked
    # A leak fills the card in any layout: fragmentation only decides at which step.
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
    if cause.id == "long-tail":  # only with a config: it says that lengths vary
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
