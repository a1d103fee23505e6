"""What a prediction can say of a run whose memory it does not follow: between which figures it lies, and why.

torch.compile fuses operations into kernels that keep less, which ones is decided while compiling: what the same run
takes uncompiled is the most (13,505 MiB on a card where the compiled run took 9,938), what no kernel can do without
(weights, gradients, optimizer states) the least. What only adds to a prediction leaves it as the least; the most is
what was seen of it. Where even the most is unknown, it is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Unfollowed

_STANDING = ("weights", "gradients", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Reserved bytes that a run lies between; `upper_bytes` is None where nothing can be said."""

    lower_bytes: int
    upper_bytes: int | None
    names: tuple[str, ...]
    why: str


def unmodelled(run: RunSpec) -> Iterator[Unfollowed]:
    """The features of a run that its figures leave out."""
    if run.kernels.torch_compile:
        why = "what it fuses is decided at compile time; the upper bound is the run without it"
        yield Unfollowed(name="torch.compile", less=True, why=why)
    if run.objective.rl and run.objective.kind == "tokens":
        why = "it is predicted as supervised fine-tuning: without a second model, pairs or generation"
        yield Unfollowed(name=f"rl: {run.objective.rl}", less=False, why=why)
    yield from _parallel(run)
    yield from run.unfollowed


def _parallel(run: RunSpec) -> Iterator[Unfollowed]:
    """Ranks that share layers or rows: what they gather and exchange meanwhile is not followed."""
    if run.sharding.tensor_parallel_size > 1:
        why = "its shares of layers are counted, but not what ranks gather of each other's results"
        yield Unfollowed(name="tensor parallelism", less=False, why=why)
    if run.sharding.context_parallel_size > 1:
        why = "its shares of rows are counted, but not the keys and values that go round"
        yield Unfollowed(name="context parallelism", less=False, why=why)


def has_no_upper_bound(run: RunSpec) -> bool:
    """Whether a feature of the run may take any amount more than predicted: no prediction can say that it fits."""
    return any(map(_adds_unknown, unmodelled(run)))


def _adds_unknown(one: Unfollowed) -> bool:
    return not one.less and one.more_weights is None and one.more_rest is None


def bounds(run: RunSpec, needs: MemoryReport) -> Bounds | None:
    """The range of a run with such features; None where the prediction follows all of it."""
    found = list(unmodelled(run))
    if not found:
        return None
    return Bounds(
        lower_bytes=_least(run, needs, found),
        upper_bytes=_most(needs, found),
        names=tuple(one.name for one in found),
        why="; ".join(f"{one.name}: {one.why}" for one in found),
    )


def _least(run: RunSpec, needs: MemoryReport, found: Sequence[Unfollowed]) -> int:
    """What is predicted, if all that its trainer leaves out only adds to it; else what no kernel can do without."""
    if not any(one.less for one in found) and len(found) == len(run.unfollowed):
        return needs.highest_reserved_bytes
    # a rank of a tensor-parallel group may hold a share of what is counted whole here: embeddings and head
    return sum(needs.breakdown_bytes.get(name, 0) for name in _STANDING) // run.sharding.tensor_parallel_size


def _most(needs: MemoryReport, found: Sequence[Unfollowed]) -> int | None:
    """What is predicted, and the most that each feature adds to it; None where one of them is not known."""
    reserved, weights = needs.highest_reserved_bytes, needs.breakdown_bytes.get("weights", 0)
    most = float(reserved)
    for one in found:
        if _adds_unknown(one):
            return None
        most += (one.more_weights or 0) * weights + (one.more_rest or 0) * (reserved - weights)
    return int(most)
