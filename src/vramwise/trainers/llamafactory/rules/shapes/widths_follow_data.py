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
    beyond_trainer="LLaMA-Factory pads to the longest row of a batch and has no key for anything else.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Batches change their shape from step to step.

    Every batch is as wide as its longest row, rounded up to 8. Each new width asks the allocator for blocks of other
    sizes than those it has cached; it reserves new segments beside the old ones, and reserved memory grows above what
    is ever allocated at once. No key of LLaMA-Factory pads rows to one length. What gives constant shapes is packing,
    which fills rows with further samples: `packing: true`, with `neat_packing: true` so that they do not see one
    another. It changes what a batch holds, so it is offered and never made by itself.

    Where expandable segments are on, which `llamafactory-cli` sees to under torchrun alone, changing widths cost
    nothing: `export PYTORCH_ALLOC_CONF=expandable_segments:True` is the cheaper remedy, and the rule is silent then.
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
        "blocks do not fit and reserved memory creeps up; packing fills rows to one width"
    )
    yield Hit(field="sequence_len", message=message, change=_fill_rows(run))


def _fill_rows(run: RunSpec) -> Change | None:
    return changes.change(
        "fill-rows",
        "changes",
        "Fill rows with further samples: packing",
        "a row holds several samples, so that a step sees more of them",
        sample_packing=True,
    )
