"""Sharded training, seen from one rank: what it holds of weights, gradients and states, and what it gathers for use.

Modelled: whole blocks are gathered around their use and dropped after it; gradients shrink to the rank's share as they
arrive; DDP's buckets; ZeRO's fp32 master copies. Not modelled: the overlap of two gathers, and NCCL's own buffers,
which lie outside the allocator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vramwise.ghost.model.attention import Tables
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.tape import Grads, Node, Parameter, Storage, Tape, Tensor
from vramwise.types import RunSpec

Block = Callable[..., Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """Over how many ranks weights, gradients and optimizer states are spread, and what lives on the host."""

    ranks: int = 1
    weights: bool = False
    grads: bool = False
    states: bool = False
    # trainable weights are kept in fp32, as a master copy (ZeRO) or as the shard itself (FSDP)
    master: bool = False
    wide_shards: bool = False
    buckets: bool = False
    host_weights: bool = False
    host_states: bool = False

    def share(self, numel: int, *, of: bool) -> int:
        """A rank's part of so many elements."""
        return -(-numel // self.ranks) if of else numel


def sharding_of(run: RunSpec) -> Sharding:
    """The sharding of a run."""
    kind = run.sharding
    # ranks that share a sequence hold the same weights, and shard them among themselves too
    ranks = max(run.data_parallel, 1) * run.context_parallel_size
    fsdp, zero = kind.startswith("fsdp"), kind.startswith("zero")
    stage = int(kind[-1]) if zero else 0
    if kind == "none" or (ranks == 1 and not (run.offload_params or run.offload_optimizer)):
        return Sharding(host_weights=run.layer_offloading)
    return Sharding(
        ranks=ranks,
        weights=fsdp or stage == 3,
        grads=fsdp or stage >= 2,
        states=fsdp or zero,
        master=zero,
        wide_shards=fsdp and run.autocast,
        buckets=kind == "ddp" and ranks > 1,
        host_weights=run.offload_params or run.layer_offloading,
        host_states=run.offload_optimizer or (fsdp and run.offload_params),
    )


class _Gathered:
    """The gathered weights of one block, while they are there."""

    __slots__ = ("storage",)

    def __init__(self) -> None:
        self.storage: Storage | None = None


def _gather_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    gathered, nbytes, label = node.extra
    if gathered.storage is None:
        before = t.mark("weights", label)
        gathered.storage = Storage(t, nbytes)
        t.tag = before
    return (grad,)


def _drop_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    node.extra.storage = None
    return (grad,)


class GatheredBlock:
    """A block whose weights are brought together before it runs, forward and backward, and dropped afterwards."""

    __slots__ = ("block", "label", "nbytes")

    def __init__(self, block: Block, nbytes: int, label: str) -> None:
        self.block = block
        self.nbytes = nbytes
        self.label = label

    def __call__(self, t: Tape, hidden: Tensor, *, tables: Tables | None, mask: Tensor | None) -> Tensor:
        """Run it."""
        gathered = _Gathered()
        t.mark("weights", self.label)
        gathered.storage = Storage(t, self.nbytes)
        if t.grad_enabled and hidden.node is not None:
            inner = without_node(hidden)
            inner.node = t.node(_drop_backward, (hidden,), ())
            inner.node.extra = gathered
            hidden = inner
            del inner
        out = self.block(t, hidden, tables=tables, mask=mask)
        # a block that is recomputed keeps its weights for the backward that follows
        if not t.in_backward or not t.grad_enabled:
            gathered.storage = None
        if t.grad_enabled and out.node is not None:
            outer = without_node(out)
            outer.node = t.node(_gather_backward, (out,), ())
            outer.node.extra = (gathered, self.nbytes, self.label)
            return outer
        return out


def reduce_buckets(t: Tape, sharding: Sharding, trainable: list[Parameter], hidden: int) -> list[Storage]:
    """The flat buffers that gradients are exchanged in: DDP's hold all of them, ZeRO's a fixed number of elements."""
    t.mark("gradients", "communication buckets")
    if sharding.buckets:
        return [Storage(t, sum(parameter.numel * parameter.dtype.size for parameter in trainable))]
    if sharding.master and sharding.ranks > 1:
        return [Storage(t, hidden * hidden * 2) for _ in range(2)]
    return []
