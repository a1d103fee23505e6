"""A run that does not fit: which changes that keep the training result would make it fit, each with its prediction.

Keeps the result: micro-batch against accumulation, recomputing activations, a fused loss kernel, a smaller eval batch,
the allocator. Each is tried alone; where none is enough, also all together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vramwise.attempting import attempt
from vramwise.subject import Subject
from vramwise.types import Change, RunSpec
from vramwise.variants import changes
from vramwise.variants.attempt import Attempt

_TRIED: tuple[changes.Builder, ...] = (
    changes.expandable_segments,
    changes.equal_eval_batch,
    changes.fuse_loss,
    changes.checkpoint_activations,
)


def remedies(subject: Subject, limit_bytes: int | None = None) -> list[Attempt]:
    """What would help, least intrusive first; those that fit, or everything tried and all of it together."""
    run = subject.run
    applying = [change for build in _TRIED if (change := build(run)) is not None and not _larger_eval(run, change)]
    tried = [_try(subject, (change,), limit_bytes) for change in applying]
    tried += _smaller_micro(subject, (), limit_bytes)
    if applying and not any(one.fits for one in tried):
        alone = run.micro_batch_size == 1
        together = [_try(subject, applying, limit_bytes)] if alone else _smaller_micro(subject, applying, limit_bytes)
        tried += together
    return [one for one in tried if one.prediction is not None]


def _larger_eval(run: RunSpec, change: Change) -> bool:
    """An evaluation at a smaller batch than training's needs no remedy."""
    return change.id == "equal-eval-batch" and (run.eval_batch_size or 0) < run.micro_batch_size


def _smaller_micro(subject: Subject, others: Sequence[Change], limit_bytes: int | None) -> list[Attempt]:
    """Smaller micro-batches until one fits; gives the first that does, else the smallest."""
    kept = [change for change in others if change.id != "equal-eval-batch"]
    found: list[Attempt] = []
    for change in changes.smaller_micro_batches(subject.run):
        found = [_try(subject, [*kept, change], limit_bytes)]
        if found[0].fits:
            break
    return found


def _try(subject: Subject, wanted: Sequence[Change], limit_bytes: int | None) -> Attempt:
    def decided(run: RunSpec) -> RunSpec:
        """What was decided about this start beyond the config stays: dtypes of this machine, lengths of the data."""
        now = subject.run
        same = run.allocator == subject.target.alloc_conf or not any("allocator" in one.fields for one in wanted)
        return replace(
            run,
            allocator=now.allocator if same else run.allocator,
            precision=now.precision,
            weights_dtype=now.weights_dtype,
            autocast=now.autocast,
            sequence_len=now.sequence_len,
            eval_sequence_len=now.eval_sequence_len if run.evaluates else None,
        )

    return attempt(subject, *wanted, adjust=decided, limit_bytes=limit_bytes)


def in_words(tried: Attempt) -> str:
    """The change as the config or the command line has it."""
    words = [f"{edit.key}: {_value(edit.value)}" for edit in tried.edits]
    words += [f"--alloc-conf {one.fields['allocator']}" for one in tried.changes if "allocator" in one.fields]
    other = " (same mathematics, other kernels)" if any(one.effect == "rounding" for one in tried.changes) else ""
    return ", ".join(words) + other


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
