"""Axolotl rules with one condition and one message: batch."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import delete_key, safe, unsafe
from vramwise.rules.rows import Case, row
from vramwise.types import RunSpec, Severity

_row = partial(row, topic="batch")


def _null(key: str, computes: str) -> Case:
    return Case(
        when=lambda run: key in run.config and run.config.document.values.get(key) is None,
        key=key,
        message=f"{key} is null, not the default 1: Axolotl computes {computes} and stops with a TypeError",
        fix=safe(f"Delete {key}: the default is 1", delete_key(key)),
    )


batch_key_null = _row(
    id="batch-key-null",
    text="""A batch key has no value, which stops the run with a TypeError.

    A missing key gets Axolotl's default, 1. A key that is present but empty (`gradient_accumulation_steps:` or `null`)
    does not: the schema accepts null as the value, and Axolotl's next calculation with it fails.

    Delete the key, or set a number. An empty `gradient_accumulation_steps` together with `batch_size` does not crash:
    batch-size-set reports that case.
    """,
    bad="micro_batch_size: 2\ngradient_accumulation_steps:\nsequence_len: 2048\n",
    good="micro_batch_size: 2\ngradient_accumulation_steps: 1\nsequence_len: 2048\n",
    beyond_trainer="The schema accepts null; the batch calculation then fails with a TypeError.",
    when=lambda run: not run.config.get("batch_size"),
    cases=(
        _null("gradient_accumulation_steps", "batch_size // micro_batch_size without a batch_size"),
        _null("micro_batch_size", "micro_batch_size × gradient_accumulation_steps"),
    ),
)


def _below_one(key: str) -> Case:
    def when(run: RunSpec) -> bool:
        value = run.config.get(key)
        return isinstance(value, int) and not isinstance(value, bool) and value < 1

    return Case(when=when, key=key, message=lambda run: f"{key} is {run.config.get(key)}: it must be at least 1")


not_positive = _row(
    id="not-positive",
    text="""A size or count is zero or negative.

    Batch sizes, lengths and ranks must be at least 1. The schema accepts any whole number, so zero passes validation.
    It then fails after the model has loaded (division by zero, an empty batch), or counts as "not set" and the default
    is used without warning.
    """,
    bad="micro_batch_size: 0\ngradient_accumulation_steps: 4\n",
    good="micro_batch_size: 1\ngradient_accumulation_steps: 4\n",
    beyond_trainer="The schema accepts any whole number; zero or less fails later, or counts as unset without warning.",
    cases=(
        *map(_below_one, ("micro_batch_size", "gradient_accumulation_steps", "batch_size", "eval_batch_size")),
        *map(_below_one, ("sequence_len", "eval_sequence_len", "pad_to_multiple_of", "lora_r")),
    ),
)


_AUTO = "auto_find_batch_size"
_KEEP_BATCH = unsafe(f"Remove {_AUTO} to keep the batch as configured", delete_key(_AUTO))


def _shrinks(run: RunSpec) -> str:
    micro, steps, ranks = run.batch.micro_batch_size, run.batch.gradient_accumulation_steps, run.batch.data_parallel
    smaller = int(micro * 0.9)
    if smaller == 0:
        return f"{_AUTO} with micro_batch_size {micro}: running out of memory ends the run, no smaller batch exists"
    return (
        f"{_AUTO}: running out of memory changes micro {micro} × accumulation {steps} × ranks {ranks} = "
        f"{micro * steps * ranks} to {smaller} × {steps} × {ranks} = {smaller * steps * ranks} or less, without warning"
    )


auto_find_batch_size = _row(
    id="auto-find-batch-size",
    explains={"auto-batch-exhausted"},
    severity=Severity.WARNING,
    also=(Severity.ERROR,),
    text="""`auto_find_batch_size` changes the effective batch when memory runs out.

    After running out of memory, transformers starts over with 0.9 of the micro-batch, rounded down, until it fits. It
    does not change gradient_accumulation_steps, so the effective batch shrinks without warning and the learning rate no
    longer matches it. At micro_batch_size 1 nothing smaller is possible and the run ends. Under ZeRO 3 transformers
    refuses the option. In RL Axolotl does not pass it on. Lower micro_batch_size and raise accumulation instead.
    """,
    bad="micro_batch_size: 8\ngradient_accumulation_steps: 4\nauto_find_batch_size: true\n",
    good="micro_batch_size: 8\ngradient_accumulation_steps: 4\n",
    beyond_trainer="transformers shrinks the micro-batch after running out of memory and does not adjust accumulation.",
    when=_AUTO,
    key=_AUTO,
    first_case=True,
    cases=(
        Case(
            when=lambda run: run.objective.rl is not None,
            message=lambda run: f"{_AUTO} has no effect with rl {run.objective.rl}: Axolotl does not pass it on",
            fix=safe(f"Remove {_AUTO}, which is not passed on", delete_key(_AUTO)),
        ),
        Case(
            when=lambda run: run.sharding.kind == "zero3",
            severity=Severity.ERROR,
            message=f"transformers refuses {_AUTO} under ZeRO 3 and stops after the model has loaded",
            fix=_KEEP_BATCH,
        ),
        Case(severity=Severity.WARNING, message=_shrinks, fix=_KEEP_BATCH),
    ),
)
