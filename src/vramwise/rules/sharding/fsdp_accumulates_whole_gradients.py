"""fsdp-accumulates-whole-gradients"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="fsdp-accumulates-whole-gradients",
    severity=Severity.WARNING,
    costs_memory=True,
    figured="yes",
    topic="sharding",
    options="--gpus 4",
    bad="micro_batch_size: 1\ngradient_accumulation_steps: 4\nfsdp_version: 2\n"
    "fsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
    good="micro_batch_size: 4\ngradient_accumulation_steps: 1\nfsdp_version: 2\n"
    "fsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A full fine-tune under FSDP accumulates unsharded gradients.

    FSDP shards gradients when it synchronises them, and the trainer does that only at the last micro-step. Until then
    every rank holds the gradients of the whole model: 2 bytes per parameter in bf16, 15 GiB for an 8B model,
    regardless of the number of GPUs.

    A larger micro-batch instead of accumulation keeps the effective batch and avoids this, but needs more activations;
    `vramwise predict --what-if` shows which is less. Or synchronise at every micro-step (`accelerator_config`,
    `gradient_accumulation_kwargs`, `sync_each_batch: true`): more traffic between the GPUs, and sums rounded in a
    different order. Adapters have small gradients, so they are not reported.
    """
    steps = run.batch.gradient_accumulation_steps
    if (
        not run.sharding.kind.startswith("fsdp")
        or run.batch.gpus < 2
        or run.adapter.kind
        or steps < 2
        or run.sharding.sync_each_batch
    ):
        return
    field = "gradient_accumulation_steps"
    message = (
        f"{run.keys[field]} {steps} under FSDP: gradients are synchronised only at the last micro-step, so until then "
        f"each of {run.batch.gpus} GPUs holds the gradients of the whole model, not its shard"
    )
    yield Hit(field=field, message=message, change=changes.exchange_each_step(run))
