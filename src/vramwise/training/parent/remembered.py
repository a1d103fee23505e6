"""Batch sizes that an earlier start of the same run found to fit, from which a resumed run begins.

`vramwise.json` in the output_dir holds the plan of the last attempt. Its batch sizes count only if nothing that affects
memory has changed: the same resolved settings, card, allocator and limit. Otherwise the config's own are tried again,
because a larger batch may fit now.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vramwise.documents.document import parse_document
from vramwise.errors import VramwiseError
from vramwise.opening.subject import Subject
from vramwise.trainers.base import Trainer
from vramwise.trainers.registry import EMBEDDED_TRAINS
from vramwise.training.plan import PLAN_FILE, Decision, TrainPlan, read_plan
from vramwise.types import SETTINGS, RunSpec

# The place of a value and the machine do not affect what a run needs; the card is compared separately.
_NOT_COMPARED = frozenset({"allocator"})
# The last release whose embedded engine trained files of trainers with a command of their own.
_LAST_RELEASE = "0.5.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What else must be unchanged since the batch sizes were found."""

    allocator: str
    memory_limit_bytes: int | None


def with_found_batches(subject: Subject, output_dir: str, now: Found) -> tuple[RunSpec, Decision | None]:
    """Return the run with the batch sizes of the last attempt, and the decision; unchanged if they do not apply."""
    earlier, run = _earlier(output_dir), subject.run
    if earlier is None or not _smaller(earlier, run) or not _same_memory(earlier, subject, now):
        return run, None
    eval_batch = run.evaluation.eval_batch_size if earlier.eval_batch_size is None else earlier.eval_batch_size
    found = run.changed(
        micro_batch_size=earlier.micro_batch_size,
        gradient_accumulation_steps=earlier.gradient_accumulation_steps,
        eval_batch_size=eval_batch if run.evaluation.eval_batch_size is not None else None,
    )
    written = f"micro {run.batch.micro_batch_size} × accumulation {run.batch.gradient_accumulation_steps}"
    if found.evaluation.eval_batch_size != run.evaluation.eval_batch_size:
        written += f", eval batch {run.evaluation.eval_batch_size}"
    value = f"micro {found.batch.micro_batch_size} × accumulation {found.batch.gradient_accumulation_steps}"
    return found, Decision(name="resumed", value=value, why=f"found before; {written} had run out of memory")


def refuse_earlier_engine(output_dir: str, owner: Trainer) -> None:
    """Raise VramwiseError if the run to resume is the embedded engine's, which no longer trains the owner's files."""
    earlier = _earlier(output_dir)
    if earlier is None or owner.name in EMBEDDED_TRAINS or earlier.trainer.partition(":")[0] != owner.name:
        return
    raise VramwiseError(
        f"the run in {output_dir} was begun by the embedded engine, which no longer trains {owner.title}'s files: "
        f"resume it with vramwise {_LAST_RELEASE} (pip install vramwise=={_LAST_RELEASE}), or start again with --fresh"
    )


def _earlier(output_dir: str) -> TrainPlan | None:
    path = Path(output_dir) / PLAN_FILE
    if not path.is_file():
        return None
    try:
        return read_plan(path)
    except VramwiseError:  # written by another version
        return None


def _smaller(earlier: TrainPlan, run: RunSpec) -> bool:
    """Return whether the earlier plan has smaller batches with the same effective batch."""
    product = run.batch.micro_batch_size * run.batch.gradient_accumulation_steps
    if earlier.micro_batch_size * earlier.gradient_accumulation_steps != product:
        return False
    evals = earlier.eval_batch_size
    if min(earlier.micro_batch_size, 1 if evals is None else evals) < 1:
        return False  # not one of our plans
    smaller_eval = evals is not None and evals < (run.evaluation.eval_batch_size or 0)
    return earlier.micro_batch_size < run.batch.micro_batch_size or smaller_eval


def _same_memory(earlier: TrainPlan, subject: Subject, now: Found) -> bool:
    run = subject.run
    try:
        was = (earlier.gpu_spec(), earlier.allocator, earlier.memory_limit_bytes)
        if was != (run.target.gpu, now.allocator, now.memory_limit_bytes):
            return False
        document = parse_document(earlier.config_path, earlier.config_text.encode("utf-8", "surrogatepass"))
        before = subject.with_document(document).run
    except VramwiseError:
        return False
    compared = [name for name in SETTINGS if name not in _NOT_COMPARED]
    return all(before.value(name) == run.value(name) for name in compared)
