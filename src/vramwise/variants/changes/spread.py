"""Several cards, checkpoints, and host memory."""

from __future__ import annotations

from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import change


def second_fsdp(run: RunSpec) -> Change | None:
    """FSDP2 shards each parameter by itself, whatever its dtype."""
    if run.sharding != "fsdp1":
        return None
    return change("second-fsdp", "changes", "Shard with FSDP2", "another sharding of the same model", sharding="fsdp2")


def shard_checkpoints(run: RunSpec) -> Change | None:
    """Each rank writes its own part."""
    if not run.sharding.startswith("fsdp"):
        return None
    why = "checkpoints are folders of shards: what reads them must know that"
    return change("shard-checkpoints", "changes", "Write sharded checkpoints", why, gathers_checkpoints=False)


def exchange_each_step(run: RunSpec) -> Change | None:
    """Gradients are sharded after every micro-step."""
    if not run.sharding.startswith("fsdp") or run.sync_each_batch:
        return None
    why = "the same gradients, summed in another order: rounding alone differs; more traffic between GPUs"
    title = "Exchange gradients at every micro-step"
    return change("exchange-each-step", "rounding", title, why, sync_each_batch=True)


def fewer_workers(run: RunSpec) -> Change | None:
    """Fewer batches ahead in host memory."""
    return change(
        "fewer-workers",
        "same",
        "Prefetch 8 batches with one worker",
        "the same batches, fewer of them ahead",
        loader_workers=1,
        loader_prefetch=8,
    )
