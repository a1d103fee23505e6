"""LLaMA-Factory's own rules about packing and the widths of rows."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.allocator.variables import EXPANDABLE
from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import Change, RunSpec, Severity
from vramwise.variants import changes

_BASE = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"


@rule(
    id="neat-packing-one-row",
    bad=f"{_BASE}neat_packing: true\nflash_attn: fa2\nper_device_train_batch_size: 4\n",
    good=f"{_BASE}neat_packing: true\nflash_attn: fa2\nper_device_train_batch_size: 1\n",
    beyond_trainer="LLaMA-Factory accepts the file and stops at the first batch.",
)
def neat_packing_one_row(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """neat_packing with flash attention supports only one row per batch.

    With flash attention, packed samples are separated by their positions, which works only for one row: the collator
    stops at a larger batch with `bsz should be 1 for neat packing`. This also applies to evaluation, whose batch is 8
    unless `per_device_eval_batch_size` is set: such a run trains until its first evaluation.

    A packed row is as long as `cutoff_len`: raise that for larger batches, or the accumulation. 0.9.4 and older reject
    neat_packing with newer versions of transformers.
    """
    if not run.config.get("neat_packing") or "flash" not in run.kernels.attn_implementation:
        return
    why = "neat_packing with flash attention supports one row per batch, and LLaMA-Factory stops at a larger one"
    if run.batch.micro_batch_size > 1:
        message = f"{run.keys['micro_batch_size']} {run.batch.micro_batch_size}: {why}"
        yield Hit(field="micro_batch_size", message=message, change=changes.one_row(run))
    elif (run.evaluation.eval_batch_size or 1) > 1:
        message = f"{run.keys['eval_batch_size']} {run.evaluation.eval_batch_size}: {why}, here the first evaluation"
        change = changes.equal_eval_batch(run)
        yield Hit(field="eval_batch_size", message=message, change=change)


@rule(
    id="widths-follow-data",
    severity=Severity.WARNING,
    costs_memory=True,
    bad=f"{_BASE}cutoff_len: 4096\n",
    good=f"{_BASE}cutoff_len: 4096\npacking: true\nneat_packing: true\n",
    beyond_trainer="LLaMA-Factory pads to the longest row of a batch and has no key to change this.",
)
def widths_follow_data(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Batches change shape from step to step.

    Every batch is as wide as its longest row, rounded up to 8. Each new width needs blocks of other sizes than the
    cached ones. The allocator reserves more segments, and reserved memory grows above what is ever allocated at once.
    No LLaMA-Factory key pads rows to a fixed length. Packing gives constant shapes by filling rows with more samples:
    `packing: true`, with `neat_packing: true` so that they do not attend to each other. It changes the contents of a
    batch, so it is never applied automatically.

    With expandable segments, changing widths cost nothing, and the rule does not report. `llamafactory-cli` turns them
    on only under torchrun; otherwise `export PYTORCH_ALLOC_CONF=expandable_segments:True` is the cheaper fix.
    """
    if (
        run.shapes.constant_shapes
        or run.shapes.sample_packing
        or run.objective.kind != "tokens"
        or EXPANDABLE in run.allocator.settings
    ):
        return
    message = (
        f"every batch is as wide as its longest row, up to {run.keys['sequence_len']} {run.shapes.sequence_len}: the "
        "cached "
        "blocks do not fit and reserved memory creeps up; packing fills rows to a constant width"
    )
    yield Hit(field="sequence_len", message=message, change=_fill_rows(run))


def _fill_rows(run: RunSpec) -> Change | None:
    return changes.change(
        "fill-rows",
        "changes",
        "Fill rows with more samples: packing",
        "a row holds several samples, so each step sees more of them",
        sample_packing=True,
    )
