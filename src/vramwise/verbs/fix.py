"""`fix`: applies fixes to a Subject until nothing more can be fixed.

Each round checks, applies the permitted fixes that do not touch the same key, and checks again, because one fix can
make another unnecessary. A refused fix is not tried again. A safe fix is also refused if the run is predicted not to
fit its card afterwards. `--fit` comes last and takes the fastest variant of the fixed config.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vramwise.documents.edit import EditRefused, apply_edits
from vramwise.errors import ConfigError, VramwiseError, describe_internal_error
from vramwise.notebook.displayed import Displayed
from vramwise.opening.options import Options
from vramwise.opening.sources import TEXT, NotOurs, Source, path_of, read_document, started
from vramwise.opening.subject import Subject, subject_of
from vramwise.types import Document, Edit, Finding, Fix
from vramwise.units import gib
from vramwise.verbs.check import (
    FileReport,
    Policy,
    check_subject,
    named_files,
    policy_for,
    prediction_for,
    refuse_mistakes,
    with_command,
    with_its_data,
)
from vramwise.whole_files import clear_leftovers, refuse_unwritable, write_atomic

if TYPE_CHECKING:
    from vramwise.variants.search.result import Fit

# More rounds than any chain of fixes needs; this stops two rules that undo each other.
_MAX_ROUNDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FixReport(Displayed):
    """The result of fixing one file: the text before and after, and what was fixed, refused and remains."""

    path: str
    before: Document | None
    after: Document | None
    applied: Sequence[Finding]
    refused: Sequence[tuple[Finding, str]]
    remaining: FileReport
    # The fastest variant of the fixed config that fits its card, with `--fit`.
    fit: Fit | None = None
    # A note about the write, e.g. that other hard links keep the old content.
    note: str = ""

    @property
    def changed(self) -> bool:
        """Whether the text changed."""
        return self.before is not None and self.after is not None and self.before.text != self.after.text


@dataclass(slots=True, kw_only=True)
class Fixed:
    """The state of fixing: the current subject, the findings fixed, and the fixes refused with the reason."""

    subject: Subject
    remaining: FileReport
    applied: list[Finding] = field(default_factory=list)
    refused: list[tuple[Finding, str]] = field(default_factory=list)
    fit: Fit | None = None


def fix(
    paths: Sequence[str],
    options: Options | None = None,
    *,
    unsafe: bool = False,
    write: bool = True,
    fits: bool = False,
) -> Iterator[FixReport]:
    """Fix every config under the paths; `write=False` does not write files (standard input is never written).

    `fits`: then replace each config by its fastest variant that fits its card.
    """
    options = options or Options()
    refuse_mistakes(options)
    files = list(named_files(paths))
    for path, error in files:
        if error:
            yield _untouched(path, FileReport(path=path, error=error))
        else:
            asked = options if path in paths else replace(options, ours_only=True)
            yield fix_source(path, asked, unsafe=unsafe, write=write, fits=fits, alone=len(files) == 1)


def fix_source(
    source: Source, options: Options, *, unsafe: bool, write: bool = False, fits: bool = False, alone: bool = True
) -> FixReport:
    """Fix one config: a path, or a text or mapping, which is never written."""
    source, options = started(source, options)
    path = path_of(source)
    policy = policy_for(path, options, predicts=alone)
    document, note = None, ""
    write = write and path not in ("-", TEXT)
    try:
        document = read_document(source, options)
        if write and options.settings and document.script is None:
            raise ConfigError("values beside the file cannot be written: write them into it, then run again")
        if write and fits:
            refuse_unwritable(path)
        subject = with_its_data(subject_of(document, options), options, policy)
        fixed = fix_subject(subject, policy, unsafe=unsafe)
        if fits:
            refit(fixed, policy)
        else:
            fixed.remaining = with_command(fixed.remaining, fixed.subject)
        after = fixed.subject.document
        if write and after.text != document.text:
            note = write_atomic(path, after.file_bytes, expected=document.file_bytes)
        elif write:
            clear_leftovers(path)
    except NotOurs as error:
        return _untouched(path, FileReport(path=path, foreign=error.foreign), document)
    except ConfigError as error:
        return _untouched(path, FileReport(path=path, error=error))
    except VramwiseError:
        raise
    except Exception as error:
        fault = ConfigError(describe_internal_error("fix", error), path=path)
        return _untouched(path, FileReport(path=path, error=fault))
    return FixReport(
        path=path,
        before=document,
        after=after,
        applied=fixed.applied,
        refused=fixed.refused,
        remaining=fixed.remaining if alone else fixed.remaining.lean(),
        fit=fixed.fit,
        note=note,
    )


def _untouched(path: str, remaining: FileReport, document: Document | None = None) -> FixReport:
    return FixReport(path=path, before=document, after=document, applied=(), refused=(), remaining=remaining)


def fix_subject(subject: Subject, policy: Policy | None = None, *, unsafe: bool = False) -> Fixed:
    """Apply safe fixes (all fixes with `unsafe`) to a subject."""
    policy = policy or Policy()
    fixed = Fixed(subject=subject, remaining=check_subject(subject, policy))
    tried: set[tuple[Edit, ...]] = set()
    for _ in range(_MAX_ROUNDS):
        if not _round(fixed, tried, policy, unsafe=unsafe):
            break
        fixed.remaining = check_subject(fixed.subject, policy)
    return fixed


def refit(fixed: Fixed, policy: Policy) -> None:
    """Replace the fixed config by the fastest variant that fits; keep it if nothing fits."""
    from vramwise.verbs.fitting.fastest import fit_subject  # late: the search is for --fit

    fixed.fit = fit_subject(fixed.subject)
    best = fixed.fit.best
    if best is not None and best.writable is not None and best.changes:
        fixed.subject = fixed.subject.with_document(best.writable)
        fixed.remaining = check_subject(fixed.subject, policy)


def _round(fixed: Fixed, tried: set[tuple[Edit, ...]], policy: Policy, *, unsafe: bool) -> bool:
    """Apply the fixes of one pass over the findings; return whether anything changed."""
    touched: set[str] = set()
    changed = False
    for finding in fixed.remaining.findings:
        fix = finding.fix
        if fix is None or not (fix.safe or unsafe) or _signature(fix) in tried or touched & _keys(fix):
            continue
        tried.add(_signature(fix))
        try:
            subject = fixed.subject.with_document(apply_edits(fixed.subject.document, fix.edits))
        except EditRefused as error:
            fixed.refused.append((finding, str(error)))
            continue
        harm = _harm(fixed.subject, subject) if policy.predicts and fix.safe else ""
        if harm:
            fixed.refused.append((finding, harm))
            continue
        fixed.subject = subject
        fixed.applied.append(finding)
        touched |= _keys(fix)
        changed = True
    return changed


def _harm(before: Subject, after: Subject) -> str:
    """Say why a safe fix would break the run: it fitted or might have, and does not with the fix; "" if it is fine.

    A run whose widths follow the data is predicted with full rows, although its samples may be shorter. A fix that
    makes all rows full can therefore break it even if that prediction does not fit.
    """
    then = prediction_for(after)[0]
    if then is None or then.memory_fits is not False:
        return ""
    now = prediction_for(before)[0]
    fills_rows = after.run.shapes.constant_shapes and not before.run.shapes.constant_shapes
    if now is not None and now.memory_fits is False and not fills_rows:
        return ""
    assert then.capacity_bytes is not None
    room = gib(then.capacity_bytes)
    return f"the fixed run is predicted to need {gib(then.needs.highest_reserved_bytes)} of {room} and would not fit"


def _keys(fix: Fix) -> set[str]:
    return {edit.key for edit in fix.edits}


def _signature(fix: Fix) -> tuple[Edit, ...]:
    # Values may be lists or mappings, which do not hash: compare their text.
    return tuple(Edit(op=edit.op, key=edit.key, value=repr(edit.value), beside=edit.beside) for edit in fix.edits)
