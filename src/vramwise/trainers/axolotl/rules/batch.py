"""Axolotl's own rules about batch sizes, accumulation and generation batches."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import TYPE_CHECKING

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import Edit, Fix, RunSpec, Severity

if TYPE_CHECKING:
    from fractions import Fraction


_ACCUMULATION = "gradient_accumulation_steps"


@rule(
    id="batch-size-set",
    severity=Severity.WARNING,
    also=(Severity.INFO, Severity.ERROR),
    bad="micro_batch_size: 2\nbatch_size: 32\nsequence_len: 2048\n",
    good="micro_batch_size: 2\ngradient_accumulation_steps: 8\nsequence_len: 2048\n",
    options="--gpus 2",
)
def batch_size_set(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
        yield Hit(_alone(run, batch), "batch_size", _set_accumulation(run, batch), severity=Severity.ERROR)
    else:
        message = _divided(run, batch) if _ACCUMULATION in run.config else _undivided(run, batch)
        as_meant = batch == run.batch.effective_batch_size
        severity = Severity.INFO if as_meant else None
        yield Hit(message, "batch_size", _set_accumulation(run, batch), severity=severity)


def _both_set(run: RunSpec, batch: int, accumulation: int) -> Hit:
    total = run.batch.micro_batch_size * accumulation * run.batch.data_parallel
    sign = "=" if total == batch else "≠"
    drop = safe if total == batch else unsafe
    product = f"micro {run.batch.micro_batch_size} × accumulation {accumulation} × {_ranks(run)} = {total}"
    return Hit(
        f"Axolotl refuses {_ACCUMULATION} together with batch_size {batch}; {product} {sign} {batch}",
        "batch_size",
        drop(f"Delete batch_size; the effective batch is {total}", delete_key("batch_size")),
        severity=Severity.ERROR,
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


def _set_accumulation(run: RunSpec, batch: int) -> Fix:
    wanted = _fraction(batch, run.batch.micro_batch_size * run.batch.data_parallel)
    count = min(_neighbours(wanted), key=lambda near: abs(near - wanted))
    total = count * run.batch.micro_batch_size * run.batch.data_parallel
    title = f"Set {_ACCUMULATION} to {count} instead: effective batch {total}"
    # An explicit null really uses batch_size on every rank: with several ranks, the effective batch differs from it.
    as_asked = wanted == count and (_ACCUMULATION not in run.config or run.batch.data_parallel == 1)
    return (safe if as_asked else unsafe)(title, *_accumulation_edits(run, count))


def _accumulation_edits(run: RunSpec, accumulation: int) -> Iterator[Edit]:
    if _ACCUMULATION in run.config:
        yield set_key(_ACCUMULATION, accumulation)
    else:
        yield insert_key(_ACCUMULATION, accumulation, beside="batch_size")
    if "micro_batch_size" not in run.config:
        yield insert_key("micro_batch_size", run.batch.micro_batch_size, beside="batch_size")
    elif run.config.get("micro_batch_size") is None:
        yield set_key("micro_batch_size", run.batch.micro_batch_size)
    yield delete_key("batch_size")


_GENERATIONS = "trl.num_generations"
_GENERATION_BATCH = "trl.generation_batch_size"


@rule(
    id="grpo-batch-not-divisible",
    bad="rl: grpo\nmicro_batch_size: 2\ngradient_accumulation_steps: 3\ntrl:\n  num_generations: 4\n",
    good="rl: grpo\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\ntrl:\n  num_generations: 4\n",
)
def grpo_batch_not_divisible(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """GRPO's generation batch is not a whole number of groups of answers.

    GRPO generates `trl.num_generations` answers per prompt and compares them within the group. The generation batch is
    `trl.generation_batch_size`, or by default micro_batch_size × gradient_accumulation_steps (× GPUs since 0.21). It
    must be a multiple of `trl.num_generations`, and on several GPUs large enough for one whole group per GPU. A single
    answer per prompt has nothing to be compared with.

    The fix raises accumulation to the next value that works. This changes the effective batch.
    """
    size = run.config.get(_GENERATIONS)
    if run.objective.rl != "grpo" or not isinstance(size, int) or isinstance(size, bool):
        return
    if size < 2:
        message = f"Axolotl refuses {_GENERATIONS} {size}: GRPO compares at least 2 answers per prompt"
        yield Hit(message, _GENERATIONS)
        return
    batch, words = _generation_batch(run)
    least = size * run.batch.gpus if run.batch.gpus > 1 else size
    if batch % size:
        message = f"{words} is not a multiple of num_generations {size} (remainder {batch % size}): incomplete groups"
    elif batch < least:
        message = (
            f"{words} < num_generations {size} × gpus {run.batch.gpus} = {least}: Axolotl requires one whole group "
            "per GPU"
        )
    else:
        return
    yield Hit(message, _GENERATIONS, _whole_groups(run, size, least))


def _generation_batch(run: RunSpec) -> tuple[int, str]:
    explicit = run.config.get(_GENERATION_BATCH)
    if isinstance(explicit, int):
        return explicit, f"{_GENERATION_BATCH} {explicit}"
    micro, accumulation, gpus = run.batch.micro_batch_size, run.batch.gradient_accumulation_steps, _counted_gpus(run)
    batch, words = micro * accumulation * gpus, f"micro {micro} × accumulation {accumulation}"
    return batch, f"{words}{f' × gpus {gpus}' if gpus > 1 else ''} = {batch}"


def _counted_gpus(run: RunSpec) -> int:
    """Up to 0.20 Axolotl ignores the number of processes, by which TRL multiplies."""
    return run.batch.gpus if schema_of(run).since("0.21.0") else 1


def _whole_groups(run: RunSpec, size: int, least: int) -> Fix:
    if isinstance(run.config.get(_GENERATION_BATCH), int):
        batch = max(least, -(-int(run.config.get(_GENERATION_BATCH)) // size) * size)
        return unsafe(f"Generate {batch} answers at a time", set_key(_GENERATION_BATCH, batch))
    micro = run.batch.micro_batch_size * _counted_gpus(run)
    stride = size // gcd(size, micro)  # the smallest accumulation that makes whole groups
    wanted = max(run.batch.gradient_accumulation_steps, -(-least // micro))
    accumulation = -(-wanted // stride) * stride
    beside = "micro_batch_size" if "micro_batch_size" in run.config else "rl"
    return unsafe(
        f"Set accumulation to {accumulation}: a generation batch of {micro * accumulation}",
        insert_key(_ACCUMULATION, accumulation, beside=beside),
    )


@rule(
    id="batch-key-null",
    bad="micro_batch_size: 2\ngradient_accumulation_steps:\nsequence_len: 2048\n",
    good="micro_batch_size: 2\ngradient_accumulation_steps: 1\nsequence_len: 2048\n",
    beyond_trainer="The schema accepts null; the batch calculation then fails with a TypeError.",
)
def batch_key_null(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A batch key has no value, which stops the run with a TypeError.

    A missing key gets Axolotl's default, 1. A key that is present but empty (`gradient_accumulation_steps:` or `null`)
    does not: the schema accepts null as the value, and Axolotl's next calculation with it fails.

    Delete the key, or set a number. An empty `gradient_accumulation_steps` together with `batch_size` does not crash:
    batch-size-set reports that case.
    """
    if run.config.get("batch_size"):
        return
    for key, computes in (
        ("gradient_accumulation_steps", "batch_size // micro_batch_size without a batch_size"),
        ("micro_batch_size", "micro_batch_size × gradient_accumulation_steps"),
    ):
        if key in run.config and run.config.document.values.get(key) is None:
            message = f"{key} is null, not the default 1: Axolotl computes {computes} and stops with a TypeError"
            yield Hit(message, key, safe(f"Delete {key}: the default is 1", delete_key(key)))


_COUNTS = (
    *("micro_batch_size", "gradient_accumulation_steps", "batch_size", "eval_batch_size"),
    *("sequence_len", "eval_sequence_len", "pad_to_multiple_of", "lora_r"),
)


@rule(
    id="not-positive",
    bad="micro_batch_size: 0\ngradient_accumulation_steps: 4\n",
    good="micro_batch_size: 1\ngradient_accumulation_steps: 4\n",
    beyond_trainer="The schema accepts any whole number; zero or less fails later, or counts as unset without warning.",
)
def not_positive(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A size or count is zero or negative.

    Batch sizes, lengths and ranks must be at least 1. The schema accepts any whole number, so zero passes validation.
    It then fails after the model has loaded (division by zero, an empty batch), or counts as "not set" and the default
    is used without warning.
    """
    for key in _COUNTS:
        value = run.config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            yield Hit(f"{key} is {value}: it must be at least 1", key)


_AUTO = "auto_find_batch_size"


@rule(
    id="auto-find-batch-size",
    explains={"auto-batch-exhausted"},
    severity=Severity.WARNING,
    also=(Severity.ERROR,),
    bad="micro_batch_size: 8\ngradient_accumulation_steps: 4\nauto_find_batch_size: true\n",
    good="micro_batch_size: 8\ngradient_accumulation_steps: 4\n",
    beyond_trainer="transformers shrinks the micro-batch after running out of memory and does not adjust accumulation.",
)
def auto_find_batch_size(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`auto_find_batch_size` changes the effective batch when memory runs out.

    After running out of memory, transformers starts over with 0.9 of the micro-batch, rounded down, until it fits. It
    does not change gradient_accumulation_steps, so the effective batch shrinks without warning and the learning rate no
    longer matches it. At micro_batch_size 1 nothing smaller is possible and the run ends. Under ZeRO 3 transformers
    refuses the option. In RL Axolotl does not pass it on. Lower micro_batch_size and raise accumulation instead.
    """
    if not run.config.get(_AUTO):
        return
    keep = unsafe(f"Remove {_AUTO} to keep the batch as configured", delete_key(_AUTO))
    if run.objective.rl is not None:
        message = f"{_AUTO} has no effect with rl {run.objective.rl}: Axolotl does not pass it on"
        fix = safe(f"Remove {_AUTO}, which is not passed on", delete_key(_AUTO))
        yield Hit(message, _AUTO, fix)
    elif run.sharding.kind == "zero3":
        message = f"transformers refuses {_AUTO} under ZeRO 3 and stops after the model has loaded"
        yield Hit(message, _AUTO, keep, severity=Severity.ERROR)
    else:
        yield Hit(_shrinks(run), _AUTO, keep)


def _shrinks(run: RunSpec) -> str:
    micro, steps, ranks = run.batch.micro_batch_size, run.batch.gradient_accumulation_steps, run.batch.data_parallel
    smaller = int(micro * 0.9)
    if smaller == 0:
        return f"{_AUTO} with micro_batch_size {micro}: running out of memory ends the run, no smaller batch exists"
    return (
        f"{_AUTO}: running out of memory changes micro {micro} × accumulation {steps} × ranks {ranks} = "
        f"{micro * steps * ranks} to {smaller} × {steps} × {ranks} = {smaller * steps * ranks} or less, without warning"
    )
