"""How a run is spread over several GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroSettings:
    """DeepSpeed's own settings, as far as memory depends on them. Sizes are in elements; None: by the model's width."""

    optimizer: str | None = None  # one that DeepSpeed makes itself, in place of the trainer's
    reduce_bucket: int | None = 500_000_000  # gradients are exchanged so many at a time
    overlaps: bool = False  # exchanges run beside backward, which takes a second bucket
    contiguous: bool = True  # gradients are copied into the bucket
    prefetch: int | None = 50_000_000  # ZeRO 3 gathers so many ahead
    keeps_under: int | None = 100_000  # ZeRO 3 leaves smaller weights gathered
    most_live: int = 1_000_000_000  # ZeRO 3 gathers nothing ahead beyond so many
    reuse_distance: int = 1_000_000_000  # ZeRO 3 keeps weights that are used again within so many
    sub_group: int = 1_000_000_000  # ZeRO 3 steps so many at a time
    wide_sums: bool = False  # gradients accumulate in fp32
    release: tuple[int, ...] = ()  # of DeepSpeed; empty: the newest that is known, of which these are
    checks_sums: bool = True  # stages 1 and 2 look through sums of gradients for what is no number, in bf16 too
    checks_by_copies: bool = False  # looking through gradients takes copies of them
    leaves_adapters: bool = True  # ZeRO 3 casts nothing where weights were cut as they were loaded: fp32 adapters stay
    holds_recomputed: bool = True  # frozen weights that checkpointing gathers anew stay until all of backward is done


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """`kind`: who divides what among the ranks."""

    kind: Literal["none", "ddp", "fsdp1", "fsdp2", "zero1", "zero2", "zero3"] = field(metadata={"flat": "sharding"})
    offload_params: bool
    offload_optimizer: bool
    shard_ranks: int | None  # FSDP shards weights over so many of the data-parallel ranks; None: all
    reshard_after_forward: bool  # FSDP: gathered weights are freed after forward
    sync_each_batch: bool  # gradients are exchanged at every micro-step, not only at the last
    gathers_checkpoints: bool  # each checkpoint collects all shards in one rank's host memory
    zero: ZeroSettings | None  # only under DeepSpeed's ZeRO
    fsdp_one_root: bool  # FSDP 2: everything outside of blocks is one unit
    fsdp_widens: Literal["nothing", "trained", "all"]  # FSDP under mixed precision: which shards go to fp32
    fsdp_adapters_apart: bool  # FSDP 2: each adapter matrix is a unit, not a part of its block's
    host_weights_wide: bool  # ZeRO 3: offloaded weights take the first one's type, which the trainer made fp32
    tensor_parallel_size: int
    context_parallel_size: int


NEUTRAL = Sharding(
    kind="none",
    offload_params=False,
    offload_optimizer=False,
    shard_ranks=None,
    reshard_after_forward=True,
    sync_each_batch=False,
    gathers_checkpoints=False,
    zero=None,
    fsdp_one_root=False,
    fsdp_widens="trained",
    fsdp_adapters_apart=False,
    host_weights_wide=False,
    tensor_parallel_size=1,
    context_parallel_size=1,
)
NEUTRAL_WHY = "one GPU"
