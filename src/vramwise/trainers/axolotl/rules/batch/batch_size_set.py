"""batch-size-set"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import Edit, Fix, RunSpec, Severity

if TYPE_CHECKING:
    from fractions import Fraction

_ACCUMULATION = "gradient_accumulation_steps"


@rule(
    id="batch-size-set",
    severity=Severity.WARNING,
    also=(Severity.INFO, Severity.ERROR),
    topic="batch",
    bad="micro_batch_size: 2\nbatch_size: 32\nsequence_len: 2048\n",
    good="micro_batch_size: 2\ngradient_accumulation_steps: 8\nsequence_len: 2048\n",
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`batch_size` does not set the number of samples per step.

    A step processes `micro_batch_size` × `gradient_accumulation_steps` × data-parallel ranks samples. Axolotl fills in
    the default accumulation of 1 before it reads `batch_size`, so `batch_size: 8` with `micro_batch_size: 1` trains
    with accumulation 1. It still plans the number of steps as if every step processed `batch_size` samples on each
    rank. The run therefore stops after 1/8 of the data, with a learning-rate schedule for that length.

    Only an explicit `gradient_accumulation_steps: null` makes Axolotl divide, and then only by the micro-batch: the
    effective batch is `batch_size` times the number of ranks. Axolotl refuses both keys together, and `batch_size`
    without any other batch key.

    Remove `batch_size` and set gradient_accumulation_steps = batch_size / micro_batch_size / gpus. The fix does this,
    and rounds to the nearest whole number if there is a remainder. Under tensor or context parallelism only the
    data-parallel ranks count.
    """
    batch = run.config.get("batch_size")
    if not batch or batch < 1:
        return
    accumulation = run.config.get(_ACCUMULATION)
    if accumulation:
        yield _both_set(run, batch, accumulation)
    elif not run.config.get("micro_batch_size"):
        yield Hit(key="batch_size", message=_alone(run, batch), severity=Severity.ERROR, fix=_fix(run, batch))
    else:
        message = _divided(run, batch) if _ACCUMULATION in run.config else _undivided(run, batch)
        as_meant = batch == run.batch.effective_batch_size
        severity = Severity.INFO if as_meant else None
        yield Hit(key="batch_size", message=message, severity=severity, fix=_fix(run, batch))


def _both_set(run: RunSpec, batch: int, accumulation: int) -> Hit:
    total = run.batch.micro_batch_size * accumulation * run.batch.data_parallel
    sign = "=" if total == batch else "≠"
    drop = safe if total == batch else unsafe
    product = f"micro {run.batch.micro_batch_size} × accumulation {accumulation} × {_ranks(run)} = {total}"
    return Hit(
        key="batch_size",
        message=(f"Axolotl refuses {_ACCUMULATION} together with batch_size {batch}; {product} {sign} {batch}"),
        severity=Severity.ERROR,
        fix=drop(f"Delete batch_size; the effective batch is {total}", delete_key("batch_size")),
    )


def _alone(run: RunSpec, batch: int) -> str:
    refused = f"Axolotl refuses batch_size {batch} without micro_batch_size and {_ACCUMULATION}"
    return f"{refused}; {_arithmetic(run, batch)}"


def _undivided(run: RunSpec, batch: int) -> str:
    ranks = run.batch.data_parallel
    step = run.batch.micro_batch_size * ranks
    taken = f"micro {run.batch.micro_batch_size} × {_ranks(run)} = {step}"
    planned = str(batch) if ranks == 1 else f"{batch} × {ranks} = {batch * ranks}"
    share = _fraction(run.batch.micro_batch_size, batch)
    but = f", but the steps are planned for {planned}" if share != 1 else ""
    length = f", so the run ends after {share} of the data" if share < 1 and _length_is_planned(run) else ""
    return (
        f"batch_size {batch} leaves accumulation at 1: a step processes {taken} samples{but}{length}; "
        f"{_arithmetic(run, batch)}"
    )


def _divided(run: RunSpec, batch: int) -> str:
    accumulation = run.batch.gradient_accumulation_steps
    return (
        f"batch_size {batch} with {_ACCUMULATION} null gives accumulation {batch} // micro "
        f"{run.batch.micro_batch_size} = "
        f"{accumulation} on each rank: effective batch {run.batch.effective_batch_size}; {_arithmetic(run, batch)}"
    )


def _length_is_planned(run: RunSpec) -> bool:
    return not any(run.config.get(key) for key in ("max_steps", "pretraining_dataset", "streaming"))


def _arithmetic(run: RunSpec, batch: int) -> str:
    """`for batch 32 set accumulation to 32 / micro 2 / gpus 2 = 8`"""
    micro, ranks = run.batch.micro_batch_size, run.batch.data_parallel
    wanted = _fraction(batch, micro * ranks)
    sum_up = f"for batch {batch} set accumulation to {batch} / micro {micro} / {_ranks(run)} = "
    if wanted.denominator == 1:
        return f"{sum_up}{wanted}"
    nearest = " or ".join(f"{count} (batch {count * micro * ranks})" for count in _neighbours(wanted))
    return f"{sum_up}{float(wanted):.2f}, not a whole number; use {nearest}"


def _fraction(numerator: int, denominator: int) -> Fraction:
    from fractions import Fraction  # slow to load, and few files have a batch_size

    return Fraction(numerator, denominator)


def _neighbours(wanted: Fraction) -> list[int]:
    lower = int(wanted)
    return [count for count in (lower, lower + 1) if count >= 1]


def _ranks(run: RunSpec) -> str:
    if run.batch.data_parallel == run.batch.gpus:
        return f"gpus {run.batch.gpus}"
    return f"data-parallel ranks {run.batch.data_parallel} (of {run.batch.gpus} gpus)"


def _fix(run: RunSpec, batch: int) -> Fix:
    wanted = _fraction(batch, run.batch.micro_batch_size * run.batch.data_parallel)
    count = min(_neighbours(wanted), key=lambda near: abs(near - wanted))
    total = count * run.batch.micro_batch_size * run.batch.data_parallel
    title = f"Set {_ACCUMULATION} to {count} instead: effective batch {total}"
    # An explicit null really uses batch_size on every rank: with several ranks, the effective batch differs from it.
    as_asked = wanted == count and (_ACCUMULATION not in run.config or run.batch.data_parallel == 1)
    return (safe if as_asked else unsafe)(title, *_edits(run, count))


def _edits(run: RunSpec, accumulation: int) -> Iterator[Edit]:
    if _ACCUMULATION in run.config:
        yield set_key(_ACCUMULATION, accumulation)
    else:
        yield insert_key(_ACCUMULATION, accumulation, beside="batch_size")
    if "micro_batch_size" not in run.config:
        yield insert_key("micro_batch_size", run.batch.micro_batch_size, beside="batch_size")
    elif run.config.get("micro_batch_size") is None:
        yield set_key("micro_batch_size", run.batch.micro_batch_size)
    yield delete_key("batch_size")
