"""Changes of sharding, checkpoints and data loading."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import kind
from vramwise.variants.changes.weights import PAGED_ADAM, PLAIN_ADAM

FSDP = kind("shard-with-fsdp")
ZERO = kind("shard-with-zero")
_ZERO_STAGES = {
    "zero1": "the optimizer's states",
    "zero2": "states and gradients",
    "zero3": "states, gradients and weights",
}


def fsdp_shards(run: RunSpec) -> Iterator[Change]:
    """Yield FSDP 2 over all cards."""
    if _can_spread(run) and not run.sharding.is_fsdp and run.loading.quantization is None:
        yield FSDP.to(sharding="fsdp2", **_unpaged(run))


def zero_shards(run: RunSpec) -> Iterator[Change]:
    """Yield the other ZeRO stages over all cards."""
    if not _can_spread(run) or run.sharding.is_fsdp:
        return
    for stage, what in _ZERO_STAGES.items():
        if stage != run.sharding.kind and not (stage == "zero3" and run.loading.quantization):
            yield ZERO.to(
                f"Shard {what} over the {run.batch.gpus} GPUs: ZeRO {stage[-1]}", sharding=stage, **_unpaged(run)
            )


def _can_spread(run: RunSpec) -> bool:
    plain = (
        run.sharding.tensor_parallel_size == run.sharding.context_parallel_size == 1 and run.objective.kind == "tokens"
    )
    adam = run.optimizer.name in PLAIN_ADAM or run.optimizer.name == PAGED_ADAM
    return run.batch.gpus > 1 and plain and run.objective.rl is None and adam and not run.savings.layer_offloading


def _unpaged(run: RunSpec) -> dict[str, str]:
    """Return torch's own AdamW for a paged optimizer: paging needs unsharded states."""
    return {"optimizer": "adamw_torch_fused"} if run.optimizer.name == PAGED_ADAM else {}


def second_fsdp(run: RunSpec) -> Change | None:
    """Use FSDP 2, which shards each parameter separately, whatever its dtype."""
    return kind("second-fsdp").to(sharding="fsdp2") if run.sharding.kind == "fsdp1" else None


def shard_checkpoints(run: RunSpec) -> Change | None:
    """Write checkpoints in shards, one per rank."""
    if not run.sharding.is_fsdp:
        return None
    return kind("shard-checkpoints").to(gathers_checkpoints=False)


def exchange_each_step(run: RunSpec) -> Change | None:
    """Shard gradients after every micro-step."""
    if not run.sharding.is_fsdp or run.sharding.sync_each_batch:
        return None
    return kind("exchange-each-step").to(sync_each_batch=True)


def fewer_workers(run: RunSpec) -> Change | None:
    """Prefetch fewer batches into host memory."""
    return kind("fewer-workers").to(loader_workers=1, loader_prefetch=8)
