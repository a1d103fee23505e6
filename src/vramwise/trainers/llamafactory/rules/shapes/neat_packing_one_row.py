"""neat-packing-one-row"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

_BASE = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"


@rule(
    id="neat-packing-one-row",
    severity=Severity.ERROR,
    topic="shapes",
    bad=f"{_BASE}neat_packing: true\nflash_attn: fa2\nper_device_train_batch_size: 4\n",
    good=f"{_BASE}neat_packing: true\nflash_attn: fa2\nper_device_train_batch_size: 1\n",
    beyond_trainer="LLaMA-Factory accepts the file and stops at the first batch.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
