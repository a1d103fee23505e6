"""Apply fixes to a document until nothing more can be mended.

Each round judges, applies the fixes that may be applied and do not touch a key twice, and judges again, because one
fix can make another unneeded. A fix whose edit is refused is remembered and not tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vramwise.documents.edit import EditRefused, apply_edits
from vramwise.types import Document, Edit, Finding, Fix

# More rounds than any chain of fixes needs; stops two rules that undo each other.
_MAX_ROUNDS = 8


@dataclass(slots=True, kw_only=True)
class Mending:
    """What was changed: the document after it, the findings mended, and the fixes refused, with the reason."""

    document: Document
    applied: list[Finding] = field(default_factory=list)
    refused: list[tuple[Finding, str]] = field(default_factory=list)


def mend(document: Document, judge: Callable[[Document], Sequence[Finding]], *, unsafe: bool) -> Mending:
    """Apply safe fixes (all fixes with `unsafe`) to the document."""
    mending = Mending(document=document)
    tried: set[tuple[Edit, ...]] = set()
    for _ in range(_MAX_ROUNDS):
        if not _round(mending, judge(mending.document), tried, unsafe):
            break
    return mending


def _round(mending: Mending, findings: Sequence[Finding], tried: set[tuple[Edit, ...]], unsafe: bool) -> bool:
    touched: set[str] = set()
    changed = False
    for finding in findings:
        fix = finding.fix
        if fix is None or not (fix.safe or unsafe) or _seen(fix, tried) or touched & _keys(fix):
            continue
        tried.add(_signature(fix))
        try:
            mending.document = apply_edits(mending.document, fix.edits)
        except EditRefused as error:
            mending.refused.append((finding, str(error)))
            continue
        mending.applied.append(finding)
        touched |= _keys(fix)
        changed = True
    return changed


def _keys(fix: Fix) -> set[str]:
    return {edit.key for edit in fix.edits}


def _signature(fix: Fix) -> tuple[Edit, ...]:
    # Values may be lists or mappings, which do not hash: compare their text.
    return tuple(Edit(op=edit.op, key=edit.key, value=repr(edit.value), beside=edit.beside) for edit in fix.edits)


def _seen(fix: Fix, tried: set[tuple[Edit, ...]]) -> bool:
    return _signature(fix) in tried
