"""Remedies on the ghost run: those that it rejects are none, and where no single one is enough, several are tried.

What survives keeps its order: first what leaves the training as it is. Shorter rows lose data and come last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from vramwise.diagnosis import remedies as r
from vramwise.diagnosis.case import Case
from vramwise.diagnosis.evidence import Remedy
from vramwise.diagnosis.witness import Ghost, survival, would_survive
from vramwise.documents.edit import EditRefused, apply_edits, diff
from vramwise.errors import VramwiseError
from vramwise.types import Edit, Fix
from vramwise.variants import changes

# What is added, in this order, where no single change is enough: harmless ones first.
_LADDER: tuple[r.Build, ...] = (
    *(r.checkpoint_activations, r.halve_micro_batch, r.fuse_loss, r.halve_micro_batch),
    *(r.eight_bit_optimizer, r.quantize_base, r.halve_micro_batch),
)


class Trial(NamedTuple):
    """What is left of the remedies, and those that would have failed too."""

    remedies: list[Remedy]
    rejected: list[Remedy]


def tried(case: Case, offered: Mapping[r.Build, Remedy], *, foremost: r.Build | None = None) -> Trial:
    """Each remedy on the ghost run: those that survive first, and those of which nothing can be said.

    `foremost`: the one that goes to the root of it, before any that merely makes all things smaller.
    """
    judged = {build: _judged(case, remedy) for build, remedy in offered.items()}
    half = judged.get(r.halve_micro_batch)
    if half is not None and half.survives is False:
        judged[r.halve_micro_batch] = _smaller_still(case, half)
    last = judged.pop(r.shorten, None)
    ranked = list(judged.values())
    if not any(remedy.survives for remedy in ranked) and _can_be_tried(case):
        ranked += _combined(case, [remedy.fix for remedy in ranked if remedy.fix and not remedy.refused])
    ranked.sort(key=lambda remedy: (remedy.survives is not True, remedy.fix is not None and not remedy.fix.safe))
    if foremost in judged and judged[foremost].survives:
        ranked.sort(key=lambda remedy: remedy is not judged[foremost])
    if last is not None:
        ranked.append(last)
    left = [remedy for remedy in ranked if remedy.survives is not False]
    rejected = [remedy for remedy in ranked if remedy.survives is False]
    if rejected and not any(remedy.survives for remedy in left):
        assert case.ghost is not None
        left.insert(0, Remedy(title=_not_enough(case.ghost)))
    return Trial(left, rejected)


def with_diff(case: Case, remedy: Remedy) -> Remedy:
    """A remedy with the diff of its edits, or why they cannot be made."""
    if remedy.fix is None or case.ghost is None:
        return remedy
    document = case.ghost.document
    try:
        return replace(remedy, diff=diff(document, apply_edits(document, remedy.fix.edits)))
    except EditRefused as error:
        return replace(remedy, refused=str(error))


def _can_be_tried(case: Case) -> bool:
    ghost = case.ghost
    return ghost is not None and ghost.prediction is not None and ghost.surpassed_by(case.memory) is None


def _judged(case: Case, remedy: Remedy) -> Remedy:
    assert case.ghost is not None
    if remedy.refused:
        return remedy
    if remedy.fields:
        subject = case.ghost.subject
        changed = subject.with_run(replace(subject.run, **remedy.fields))  # type: ignore[arg-type]
        survives, figures = survival(case.ghost, changed, case.memory)
    elif remedy.fix is not None:
        survives, figures = would_survive(case.ghost, remedy.fix.edits, case.memory)
    else:
        return remedy
    return replace(remedy, survives=survives, prediction=figures)


def _smaller_still(case: Case, half: Remedy) -> Remedy:
    """The largest micro-batch that survives; half of it where none does."""
    assert case.run is not None
    assert case.ghost is not None
    for change in changes.smaller_micro_batches(case.run):
        remedy = r.spelt(case.ghost.subject, change)
        if remedy is None or remedy.title == half.title:
            continue
        judged = _judged(case, with_diff(case, remedy))
        if judged.survives:
            return judged
    return half


def _combined(case: Case, fixes: list[Fix]) -> list[Remedy]:
    """Where no single change is enough: one after another, until the ghost run survives."""
    ghost = case.ghost
    assert ghost is not None
    edits: list[Edit] = list(fixes[0].edits) if fixes else []
    safe = all(fix.safe for fix in fixes[:1])
    survives: bool | None = False
    figures = ""
    for build in _LADDER:
        try:
            changed = ghost.subject.with_document(apply_edits(ghost.document, edits))
        except VramwiseError:
            return []
        remedy = build(changed)
        if remedy is None or remedy.fix is None:
            continue
        edits += remedy.fix.edits
        safe = safe and remedy.fix.safe
        survives, figures = would_survive(ghost, edits, case.memory)
        if survives is not False:
            break
    if not edits:
        return []
    title = "Several changes together" if survives else "All of these together"
    fix = Fix(title=title, safe=safe, edits=tuple(edits))
    return [with_diff(case, Remedy(title=title, fix=fix, survives=survives, prediction=figures))]


def _not_enough(ghost: Ghost) -> str:
    adapter = "" if ghost.run.adapter else "an adapter (lora, qlora), "
    return f"No change of these is enough for this card: it takes {adapter}sharding over several cards, or a larger one"
