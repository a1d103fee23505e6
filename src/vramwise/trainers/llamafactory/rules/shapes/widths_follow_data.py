"""widths-follow-data"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.allocator.variables import EXPANDABLE
from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import Change, RunSpec, Severity
from vramwise.variants import changes

_BASE = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"


@rule(
    id="widths-follow-data",
    severity=Severity.WARNING,
    costs_memory=True,
    topic="shapes",
    bad=f"{_BASE}cutoff_len: 4096\n",
    good=f"{_BASE}cutoff_len: 4096\npacking: true\nneat_packing: true\n",
    beyond_trainer="LLaMA-Factory pads to the longest row of a batch and has no key to change this.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
