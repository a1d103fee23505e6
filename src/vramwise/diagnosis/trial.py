"""Try remedies on the ghost run: rejected ones are dropped, and the result of `fit` comes last.

The others keep their order: first those that leave the training result unchanged. Shorter rows lose data and come last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vramwise.diagnosis.case import Case
from vramwise.diagnosis.evidence import Remedy
from vramwise.diagnosis.witness import Ghost, survival, would_survive
from vramwise.documents.edit import EditRefused, apply_edits, diff
from vramwise.types import Fix
from vramwise.units import gib
from vramwise.variants.effort import DIAGNOSIS
from vramwise.verbs.fitting.ways_out import way_out


def tried(
    case: Case, offered: Mapping[str, Remedy], *, foremost: str | None = None
) -> tuple[list[Remedy], list[Remedy]]:
    """Return the remedies that survive on the ghost run, then those without a prediction; and those that fail too.

    `foremost`: the remedy that addresses the root cause; it goes first if it survives.
    """
    judged = {name: _judged(case, remedy) for name, remedy in offered.items()}
    last = judged.pop("shorten-rows", None)
    ranked = list(judged.values())
    ranked.sort(key=lambda remedy: (remedy.survives is not True, remedy.fix is not None and not remedy.fix.safe))
    if foremost in judged and judged[foremost].survives:
        ranked.sort(key=lambda remedy: remedy is not judged[foremost])
    if last is not None:
        ranked.append(last)
    left = [remedy for remedy in ranked if remedy.survives is not False]
    rejected = [remedy for remedy in ranked if remedy.survives is False]
    return left, rejected


def fitted(case: Case) -> Remedy | None:
    """Return what `fit` makes of the config on the log's card, with the command that writes it.

    None if nothing that was tried fits, or if the config was predicted to fit as it is.
    """
    ghost = case.ghost
    if ghost is None or ghost.prediction is None or not _can_be_tried(case):
        return None
    try:
        room = case.memory.allowed_bytes if case.memory else None
        out = way_out(ghost.subject, limit_bytes=room, most=DIAGNOSIS)
    except Exception:
        return None  # an internal error of the prediction must not break the diagnosis; the remedies report it
    if out is None:
        return None
    attempt = out.attempt
    if attempt is None or attempt.prediction is None:
        return Remedy(title="See what would make it fit", command=out.command)
    before, after = [gib(one.needs.highest_reserved_bytes) for one in (ghost.prediction, attempt.prediction)]
    remedy = Remedy(
        title=f"The fastest that fits: {attempt.words}",
        command=out.command,
        survives=True,
        prediction=f"{before} → {after} reserved of {gib(attempt.prediction.capacity_bytes or 0)}",
    )
    if not attempt.edits or attempt.writable is None:
        return remedy
    gravest = max(attempt.changes, key=lambda change: ("same", "rounding", "changes").index(change.effect))
    fix = Fix(title=attempt.title, safe=attempt.safe, edits=attempt.edits, change=gravest)
    return replace(remedy, fix=fix, diff=diff(ghost.document, attempt.writable))


def with_diff(case: Case, remedy: Remedy) -> Remedy:
    """Return the remedy with the diff of its edits, or with the reason why they cannot be made."""
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
        changed = subject.with_run(subject.run.changed(**remedy.fields))
        survives, figures = survival(case.ghost, changed, case.memory)
    elif remedy.fix is not None:
        survives, figures = would_survive(case.ghost, remedy.fix.edits, case.memory)
    else:
        return remedy
    return replace(remedy, survives=survives, prediction=figures)


def not_enough(ghost: Ghost) -> str:
    """Return the advice for a case in which no change is enough."""
    adapter = "" if ghost.run.adapter.kind else "an adapter (lora, qlora), "
    return f"None of these changes is enough for this card. Use {adapter}sharding over several cards, or a larger card"
