"""Ways to use several GPUs: DDP, FSDP 2 and ZeRO 1 to 3, with and without offloading, all other settings unchanged."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace

from vramwise.errors import VramwiseError
from vramwise.opening.subject import Subject
from vramwise.types import Change, RunSpec
from vramwise.variants.attempt import Attempt
from vramwise.variants.changes.spread import fsdp_shards, zero_shards
from vramwise.verbs.drafts import attempt

_NAMES = {"none": "one GPU", "ddp": "DDP", "fsdp1": "FSDP 1", "fsdp2": "FSDP 2"} | {
    f"zero{stage}": f"ZeRO {stage}" for stage in (1, 2, 3)
}
_IN_FSDP = "parameter offload in the FSDP settings"
_BY_HAND = {
    "fsdp1": _IN_FSDP,
    "fsdp2": _IN_FSDP,
    "zero1": "offload_optimizer in the DeepSpeed file",
    "zero2": "offload_optimizer in the DeepSpeed file",
    "zero3": "offload_optimizer and offload_param in the DeepSpeed file",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way to use the GPUs.

    `allow`: the word of --allow that permits it; "" for the file's own. `by_hand`: what --allow does not write and the
    user has to set. `offloads`: optimizer states, and weights if they are sharded, are in host memory.
    `attempt.prediction` is None if it could not be written for this trainer; `attempt.refused` says why.
    """

    kind: str
    allow: str
    offloads: bool
    attempt: Attempt
    by_hand: str = ""
    launch: str = ""  # the launch command; "" if the trainer has none

    @property
    def name(self) -> str:
        """The name for display: `ZeRO 3 with offload`."""
        return f"{_NAMES[self.kind]}{' with offload' if self.offloads else ''}"


def strategies(subject: Subject, limit_bytes: int | None = None) -> tuple[Strategy, ...]:
    """Return every strategy, the file's own first; empty for one GPU or an unknown model."""
    if subject.target.gpus < 2 or subject.model is None:
        return ()
    return tuple(found for one in _written(subject, limit_bytes) for found in _with_offload(subject, one, limit_bytes))


def fastest(found: tuple[Strategy, ...]) -> Strategy | None:
    """Return the fastest strategy that fits, or None.

    If speeds are unknown, it is the first, one without offloading before others.
    """
    fitting = [one for one in found if one.attempt.fits]
    return min(fitting, key=lambda one: (one.attempt.seconds or 0.0, one.offloads), default=None)


def _written(subject: Subject, limit_bytes: int | None) -> Iterator[Strategy]:
    """Yield the file as it is, and with each kind of sharding written into it by its trainer."""
    yield _strategy(subject, (), "", limit_bytes)
    for allow, build in (("fsdp", fsdp_shards), ("zero", zero_shards)):
        for change in build(subject.run):
            yield _strategy(subject, (change,), allow, limit_bytes)


def _strategy(subject: Subject, changes: tuple[Change, ...], allow: str, limit_bytes: int | None) -> Strategy:
    made = attempt(subject, *changes, limit_bytes=limit_bytes)
    kind = str(changes[0].fields["sharding"]) if changes else subject.run.sharding.kind
    if made.run is None:
        return Strategy(kind=kind, allow=allow, offloads=False, attempt=made)
    return Strategy(
        kind=made.run.sharding.kind,
        allow=allow,
        offloads=_offloads(made.run),
        attempt=replace(made, speed=subject.with_run(made.run).speed()),
        launch=_launch(subject, made.run),
    )


def _with_offload(subject: Subject, one: Strategy, limit_bytes: int | None) -> Iterator[Strategy]:
    """Yield a strategy, and the same with optimizer states (and sharded weights) in host memory, if that exists."""
    yield one
    run = one.attempt.run
    if run is None or one.offloads or not one.kind.startswith(("fsdp", "zero")):
        return
    moved = run.changed(offload_optimizer=True, offload_params=one.kind in ("fsdp1", "fsdp2", "zero3"))
    other = subject.with_run(moved)
    try:
        prediction = other.prediction(limit_bytes=limit_bytes)
    except VramwiseError:
        return
    made = replace(one.attempt, run=moved, prediction=prediction, speed=other.speed())
    yield replace(one, offloads=True, attempt=made, by_hand=_BY_HAND[one.kind])


def _offloads(run: RunSpec) -> bool:
    return run.sharding.offload_params or run.sharding.offload_optimizer


def _launch(subject: Subject, run: RunSpec) -> str:
    path = shlex.quote(subject.document.path)
    if subject.document.script is not None:
        return f"accelerate launch --num_processes {run.batch.gpus} {path}"
    starter = subject.trainer.starter
    return "" if starter is None else starter().launch(run, path)
