"""Bounds for runs whose memory cannot be fully predicted, and the reason.

torch.compile fuses operations into kernels that keep less; which ones is decided while compiling. The uncompiled run is
the upper bound (13,505 MiB on a card where the compiled run took 9,938); weights, gradients and optimizer states are
the lower bound. A feature that only adds memory leaves the prediction as the lower bound; the upper bound is what was
measured. If even that is unknown, the upper bound is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vramwise.models.compiled import compiled_program
from vramwise.models.names import MORE_WEIGHTS, is_wide
from vramwise.timeline import MemoryReport
from vramwise.types import ModelSpec, RunSpec, Unfollowed
from vramwise.variants.unread import unread_features

# 60 runs of nine families written by hand, predicted with and without (`bench/kernel_shares.py`): with kernels they
# reserve 73 to 103 % of what they reserve without, with a tiled MLP 52 to 121 %.
_KERNELS_LEAVE, _KERNELS_ADD = 0.7, 0.05
_TILES_LEAVE, _TILES_ADD = 0.5, 0.3

_STANDING = ("weights", "gradients", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The range of reserved bytes of a run; `upper_bytes` is None if there is no known upper bound."""

    lower_bytes: int
    upper_bytes: int | None
    names: tuple[str, ...]
    why: str


def unmodelled(run: RunSpec, model: ModelSpec | None = None) -> Iterator[Unfollowed]:
    """Yield the features of a run that its prediction does not include; without `model`, those of any model."""
    if run.kernels.torch_compile and (model is None or compiled_program(run, model) is None):
        why = "what it fuses is decided at compile time; the upper bound is the run without it"
        yield Unfollowed(name="torch.compile", less=True, why=why)
    if run.objective.rl and run.objective.kind == "tokens":
        why = "it is predicted as supervised fine-tuning: without a second model, pairs or generation"
        yield Unfollowed(name=f"rl: {run.objective.rl}", less=False, why=why)
    yield from _kernels(run, model)
    yield from _parallel(run)
    yield from _unstated(run)
    yield from run.unfollowed
    yield from _checkpoint(run)
    yield from unread_features(run)


def _kernels(run: RunSpec, model: ModelSpec | None) -> Iterator[Unfollowed]:
    """Yield the kernels that replace parts of a layer, which a traced layer is predicted without."""
    if model is None or model.trace is None:
        return
    why = f"the layers of {model.model_type} are traced, and predicted without"
    parts = {"Liger's kernels": run.kernels.liger, "fused LoRA kernels": run.adapter.fused_lora}
    names = [name for name, used in parts.items() if used]
    if names:
        yield Unfollowed(
            name=" and ".join(names), less=True, why=why, least_share=_KERNELS_LEAVE, more_rest=_KERNELS_ADD
        )
    if run.savings.tiled_mlp:
        yield Unfollowed(name="tiled MLP", less=True, why=why, least_share=_TILES_LEAVE, more_rest=_TILES_ADD)


def _checkpoint(run: RunSpec) -> Iterator[Unfollowed]:
    """Yield that the base model is a 4-bit checkpoint with 16-bit layers, unless the trainer's resolver says so."""
    name = "dynamic 4-bit checkpoint"
    if (
        run.loading.quantization == "4bit"
        and is_wide(run.base_model)
        and all(one.name != name for one in run.unfollowed)
    ):
        why = f"{run.base_model} leaves some layers in 16 bits (a fifth more was seen)"
        yield Unfollowed(name=name, less=False, why=why, more_weights=MORE_WEIGHTS)


def _unstated(run: RunSpec) -> Iterator[Unfollowed]:
    """Yield what depends on a version that nobody stated: the newest one needs the most."""
    origin = run.origins.get("loads_through")
    if run.loading.quantization is not None and origin is not None and origin.kind == "assumed":
        yield Unfollowed(name="loading of the quantised base", less=True, why=origin.why, only_loading=True)
    zero, origin = run.sharding.zero, run.origins.get("zero")
    held = zero is not None and zero.holds_recomputed and run.savings.recompute and run.adapter.kind is not None
    if held and origin is not None and origin.kind == "assumed":
        share = 1 / (run.batch.data_parallel + 1)  # all weights, held beside this rank's share of them
        yield Unfollowed(name="frozen weights under ZeRO 3", less=True, why=origin.why, least_share=share)


def _parallel(run: RunSpec) -> Iterator[Unfollowed]:
    """Yield parallelism that divides layers or rows: what ranks gather and exchange is not predicted."""
    if run.sharding.tensor_parallel_size > 1:
        why = "its shares of layers are counted, but not what ranks gather of each other's results"
        yield Unfollowed(name="tensor parallelism", less=False, why=why)
    if run.sharding.context_parallel_size > 1:
        why = "its shares of rows are counted, but not the keys and values that go round"
        yield Unfollowed(name="context parallelism", less=False, why=why)


def has_no_upper_bound(run: RunSpec) -> bool:
    """Return whether a feature of the run may add any amount, so that no prediction can say that it fits."""
    return any(map(_adds_unknown, unmodelled(run)))


def _adds_unknown(one: Unfollowed) -> bool:
    return not one.less and one.more_weights is None and one.more_rest is None


def bounds(run: RunSpec, model: ModelSpec, needs: MemoryReport) -> Bounds | None:
    """Return the range of a run with such features; None if the prediction covers all of it."""
    loading = needs.highest_allocated_bytes > _in_steps(needs)
    found = [one for one in unmodelled(run, model) if loading or not one.only_loading]
    if not found:
        return None
    return Bounds(
        lower_bytes=_least(run, needs, found),
        upper_bytes=_most(needs, found),
        names=tuple(one.name for one in found),
        why="; ".join(f"{one.name}: {one.why}" for one in found),
    )


def _least(run: RunSpec, needs: MemoryReport, found: Sequence[Unfollowed]) -> int:
    """Return the prediction if the trainer's features only add to it; else weights, gradients and optimizer states."""
    adding = {*run.unfollowed, *_checkpoint(run), *unread_features(run)}
    if not any(one.less for one in found) and adding.issuperset(found):
        return needs.highest_reserved_bytes
    if all(one.only_loading for one in found):  # what steps take is known
        return _in_steps(needs)
    shares = [one.least_share for one in found if one.least_share is not None]
    if len(shares) == len(found):
        return int(needs.highest_reserved_bytes * min(shares))
    # a tensor-parallel rank may hold only a share of embeddings and head, which are counted whole here
    return sum(needs.breakdown_bytes.get(name, 0) for name in _STANDING) // run.sharding.tensor_parallel_size


def _in_steps(needs: MemoryReport) -> int:
    """Return the highest allocated memory of a step; loading is none."""
    return max((peak.peak_allocated_bytes for peak in needs.phases if peak.step), default=0)


def _most(needs: MemoryReport, found: Sequence[Unfollowed]) -> int | None:
    """Return the prediction plus the most that each feature adds; None if that is unknown for one of them."""
    reserved, weights = needs.highest_reserved_bytes, needs.breakdown_bytes.get("weights", 0)
    most = float(reserved)
    for one in found:
        if _adds_unknown(one):
            return None
        most += (one.more_weights or 0) * weights + (one.more_rest or 0) * (reserved - weights)
    return int(most)
