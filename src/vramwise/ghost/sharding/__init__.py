"""Sharded training, seen from one rank: what it holds of weights, gradients and states, and what it gathers for use.

FSDP is `fsdp_units`, ZeRO `zero_engine` and what is beside it, DDP `ddp`. Here: what each kind of sharding spreads, and
offloaded blocks, gathered around their use and dropped after it. Not modelled: NCCL's own buffers, which lie outside
the allocator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from vramwise.ghost.dtypes import BY_NAME, DType
from vramwise.ghost.model.attention import Tables
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.sharding.zero import Zero, zero_of
from vramwise.ghost.tape import Grads, Node, Storage, Tape, Tensor
from vramwise.timeline import Action, Event
from vramwise.types import RunSpec

Block = Callable[..., Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """Over how many ranks weights, gradients and optimizer states are spread, and what lives on the host."""

    ranks: int = 1
    weights: bool = False
    grads: bool = False
    states: bool = False
    buckets: bool = False
    host_weights: bool = False
    host_states: bool = False
    fsdp: Fsdp | None = None
    zero: Zero | None = None

    def share(self, numel: int, *, of: bool) -> int:
        """Return a rank's part of so many elements."""
        return -(-numel // self.ranks) if of else numel


@dataclass(frozen=True, slots=True, kw_only=True)
class Fsdp:
    """How FSDP treats its units: groups of weights that are gathered together."""

    version: int
    # what weights are gathered in and gradients exchanged in; None: as they are
    compute: DType | None
    # which shards go to fp32 before training
    widens: Literal["nothing", "trained", "all"]
    # embeddings, last norm and head are one unit, or the embeddings another than the rest (accelerate's FSDP 2)
    one_root: bool
    # weights are dropped after forward, and gathered again for backward
    drops_blocks: bool
    drops_root: bool
    # each adapter matrix is a unit of its own: blocks hold frozen weights alone
    adapters_apart: bool
    # several groups of ranks hold the same shards
    replicated: bool
    # the whole model is one unit, blocks and all
    one_unit: bool = False


def sharding_of(run: RunSpec) -> Sharding:
    """Return the sharding of a run."""
    kind = run.sharding.kind
    fsdp = run.sharding.is_fsdp
    # ranks that share a sequence hold the same weights, and shard them among themselves too
    data_ranks = max(run.batch.data_parallel, 1)
    shard_ranks = min(run.sharding.shard_ranks or data_ranks, data_ranks) if fsdp else data_ranks
    ranks = shard_ranks * run.sharding.context_parallel_size
    zero = zero_of(run, ranks)
    if zero is not None:
        return Sharding(ranks=ranks, weights=zero.stage == 3, host_weights=zero.host_weights, zero=zero)
    if kind == "none" or (ranks == 1 and not (run.sharding.offload_params or run.sharding.offload_optimizer)):
        return Sharding(host_weights=run.savings.layer_offloading)
    return Sharding(
        ranks=ranks,
        weights=fsdp,
        grads=fsdp,
        states=fsdp,
        buckets=kind == "ddp" and ranks > 1,
        host_weights=run.sharding.offload_params or run.savings.layer_offloading,
        host_states=run.sharding.offload_optimizer or (fsdp and run.sharding.offload_params),
        fsdp=_fsdp(run, replicated=shard_ranks < data_ranks) if fsdp and ranks > 1 else None,
    )


def _fsdp(run: RunSpec, *, replicated: bool) -> Fsdp:
    """FSDP 1 and 2 as accelerate sets them up (1.15), and FSDP 2 where a trainer puts its own in place of that."""
    version = int(run.sharding.kind[-1])
    own = version == 2 and run.sharding.fsdp_one_root
    packed = version == 2 and run.loading.quantization == "4bit"
    return Fsdp(
        version=version,
        compute=None if run.precision.half is None else BY_NAME[run.precision.half],
        widens=run.sharding.fsdp_widens if run.precision.autocast and not packed else "nothing",
        one_root=version == 1 or own,
        drops_blocks=run.sharding.reshard_after_forward,
        # FSDP 1 and accelerate keep what backward begins with
        drops_root=own and run.sharding.reshard_after_forward,
        adapters_apart=version == 2 and run.sharding.fsdp_adapters_apart and run.adapter.kind is not None,
        replicated=replicated,
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
        if t.work is not None:
            t.work.copy(nbytes, to_host=False)
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
        """Return the hidden states after the block."""
        gathered = _Gathered()
        t.mark("weights", self.label)
        gathered.storage = Storage(t, self.nbytes)
        if t.work is not None:
            t.work.copy(self.nbytes, to_host=False)
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


GATHER_STREAM = 1
REDUCE_STREAM = 2
# a second model that FSDP shards by itself has streams of its own
REFERENCE_STREAM = 3


class StreamStorage(Storage):
    """Memory that was asked for on another stream than the one that computes."""

    __slots__ = ()

    def __init__(self, tape: Tape, nbytes: int, stream: int) -> None:
        super().__init__(tape, nbytes)
        made = tape.events[self.event]
        tape.events[self.event] = Event(Action.ALLOC, made.tensor, nbytes, stream, made.tag)
