"""How a run is spread over several GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from vramwise.types.sections import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroSettings:
    """DeepSpeed settings that affect memory. Sizes are in elements; None: derived from the model's width."""

    optimizer: str | None = None  # the optimizer that DeepSpeed creates instead of the trainer
    reduce_bucket: int | None = 500_000_000  # number of gradient elements exchanged at a time
    overlaps: bool = False  # exchanges overlap with backward, which needs a second bucket
    contiguous: bool = True  # gradients are copied into the bucket
    prefetch: int | None = 50_000_000  # number of elements that ZeRO 3 gathers in advance
    keeps_under: int | None = 100_000  # ZeRO 3 keeps smaller weights gathered
    most_live: int = 1_000_000_000  # ZeRO 3 stops gathering in advance beyond this number
    reuse_distance: int = 1_000_000_000  # ZeRO 3 keeps weights that are used again within this distance
    sub_group: int = 1_000_000_000  # number of elements that a ZeRO 3 optimizer step updates at a time
    wide_sums: bool = False  # gradients accumulate in fp32
    release: tuple[int, ...] = ()  # the DeepSpeed version; empty: the newest known one, which these defaults belong to
    checks_sums: bool = True  # stages 1 and 2 check summed gradients for NaN and infinity, in bf16 too
    checks_by_copies: bool = False  # that check copies the gradients
    leaves_adapters: bool = True  # ZeRO 3 casts nothing if weights were sharded while loading: fp32 adapters stay fp32
    holds_recomputed: bool = True  # frozen weights that checkpointing gathers again stay until backward ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """`kind`: how the run is divided among the ranks."""

    neutral_why: ClassVar[str] = "one GPU"

    kind: Literal["none", "ddp", "fsdp1", "fsdp2", "zero1", "zero2", "zero3"] = field(
        metadata=setting("none", flat="sharding", compared=False)
    )
    offload_params: bool = field(metadata=setting(False, phrase="weights offloaded to the host"))
    offload_optimizer: bool = field(metadata=setting(False, phrase="optimizer states offloaded to the host"))
    # the number of data-parallel ranks that FSDP shards weights over; None: all
    shard_ranks: int | None = field(metadata=setting(None, compared=False))
    # FSDP: gathered weights are freed after forward
    reshard_after_forward: bool = field(metadata=setting(True, compared=False))
    # gradients are exchanged at every micro-step, not only at the last
    sync_each_batch: bool = field(metadata=setting(False, compared=False))
    # each checkpoint collects all shards in one rank's host memory
    gathers_checkpoints: bool = field(metadata=setting(False, compared=False))
    zero: ZeroSettings | None = field(metadata=setting(None))  # only under DeepSpeed's ZeRO
    # FSDP 2: everything outside blocks is one unit
    fsdp_one_root: bool = field(metadata=setting(False, plain="FSDP 2 as accelerate wraps it"))
    # FSDP under mixed precision: which shards are cast to fp32
    fsdp_widens: Literal["nothing", "trained", "all"] = field(
        metadata=setting("trained", compared=False, plain="FSDP 2 as accelerate wraps it")
    )
    # FSDP 2: each adapter matrix is its own unit, not part of its block's
    fsdp_adapters_apart: bool = field(metadata=setting(False, compared=False, plain="FSDP 2 as accelerate wraps it"))
    # ZeRO 3: offloaded weights take the dtype of the first one, which the trainer cast to fp32
    host_weights_wide: bool = field(
        metadata=setting(False, compared=False, plain="no weight is cast before DeepSpeed takes them")
    )
    tensor_parallel_size: int = field(metadata=setting(1))
    context_parallel_size: int = field(metadata=setting(1))

    @property
    def is_fsdp(self) -> bool:
        """Whether torch's FSDP shards the run."""
        return self.kind in ("fsdp1", "fsdp2")

    @property
    def is_zero(self) -> bool:
        """Whether DeepSpeed's ZeRO shards the run."""
        return self.kind in ("zero1", "zero2", "zero3")
