"""Fixes the errors of a config that does not start, before `fit` begins its search."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.documents.edit import apply_edits
from vramwise.errors import VramwiseError
from vramwise.subject import Subject
from vramwise.types import Finding, split_key

# More errors than a real config has.
_MOST_REPAIRS = 16


def repaired(subject: Subject, keep: Sequence[str] = ()) -> tuple[Subject, tuple[Finding, ...]]:
    """Return the subject with its fixable errors fixed, and those errors. `keep`: keys that must not change."""
    kept = {split_key(key)[0] for key in keep}
    fixed: list[Finding] = []
    tried: set[tuple[str, str | None]] = set()
    for _ in range(_MOST_REPAIRS):
        left = (one for one in subject.stops if (one.rule, one.key) not in tried)
        # Misspelt keys come first: correcting the name may resolve a missing key.
        found = min(left, key=lambda one: not one.still_runs, default=None)
        if found is None:
            break
        tried.add((found.rule, found.key))
        if found.fix is None or kept & {split_key(edit.key)[0] for edit in found.fix.edits}:
            continue
        try:
            subject = subject.with_document(apply_edits(subject.document, found.fix.edits))
        except VramwiseError:
            continue
        fixed.append(found)
    return subject, tuple(fixed)
