"""For a run that does not fit: changes that keep the training result and make it fit, each with its prediction.

The search is that of `fit`, over changes that keep the result. What was decided about this start beyond the config
stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.subject import Subject
from vramwise.types import Change, RunSpec
from vramwise.variants.attempt import Attempt
from vramwise.variants.axes import opened
from vramwise.verbs.drafts import Adjust
from vramwise.verbs.fitting.fastest import fit_subject, keeping_result


def remedies(subject: Subject, limit_bytes: int | None = None) -> list[Attempt]:
    """Return the fastest change that fits, then slower ones that need less; if nothing fits, the closest."""
    found = fit_subject(subject, limit_bytes=limit_bytes, adjust=_decided(subject), axes=keeping_result(opened()))
    if found.best is not None:
        return [one.attempt for one in (found.best, *found.alternatives)]
    nearer = found.closest is not None and found.closest.attempt.changes
    return [found.closest.attempt] if found.closest is not None and nearer else []


def _decided(subject: Subject) -> Adjust:
    """Return a function that keeps this start's decisions: dtypes, lengths of the data, the allocator."""
    now = subject.run

    def adjust(run: RunSpec, changes: Sequence[Change]) -> RunSpec:
        same = run.allocator.settings == subject.target.alloc_conf or not any(
            "allocator" in one.fields for one in changes
        )
        return run.changed(
            allocator=now.allocator.settings if same else run.allocator.settings,
            precision=now.precision.compute,
            weights_dtype=now.precision.weights_dtype,
            autocast=now.precision.autocast,
            sequence_len=now.shapes.sequence_len,
            eval_sequence_len=now.evaluation.eval_sequence_len if run.evaluation.evaluates else None,
        )

    return adjust


def in_words(tried: Attempt) -> str:
    """Return the change as written in the config or on the command line, and what to change by hand in a script."""
    words = [f"{edit.key}: {_value(edit.value)}" for edit in tried.edits]
    words += tried.by_hand
    words += [f"--alloc-conf {one.fields['allocator']}" for one in tried.changes if "allocator" in one.fields]
    other = " (same mathematics, other kernels)" if any(one.effect == "rounding" for one in tried.changes) else ""
    return ", ".join(words) + other


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
