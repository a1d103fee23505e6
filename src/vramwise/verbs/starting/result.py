"""The result of `new`: the config and the decisions behind it, or what is missing if nothing fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vramwise.opening.subject import Subject
from vramwise.types import Finding, GpuSpec
from vramwise.variants.duration import Duration
from vramwise.variants.prediction import Prediction
from vramwise.variants.speed import Speed
from vramwise.verbs.starting.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Better:
    """A better method that does not fit: the memory it needs, how much is missing, and the smallest card for it."""

    method: str
    needs_bytes: int
    short_bytes: int
    card: GpuSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class New:
    """A new config. `text` is "" if nothing fits; then `closest` and `smaller_model` say what comes closest.

    `subject` is the config as read from its text. `better`: the next better method, which does not fit. `findings`:
    what `check` finds in it. `companions`: further files that it needs, by path. `requirements`: what else must be true
    for it to start and is not known here. `closest`: the method that misses by least. `smaller_model`: a model of the
    same family that fits. `proof_bytes`: what the weights alone need with the leanest method, if that proves that
    nothing fits; otherwise 0, after `tries` predictions.
    """

    plan: Plan
    method: str
    subject: Subject
    prediction: Prediction
    text: str = ""
    script: bool = False
    packed: bool = False
    speed: Speed | None = None
    duration: Duration | None = None
    launch: str = ""
    companions: Mapping[str, str] = field(default_factory=dict)
    requirements: Sequence[str] = ()
    better: Better | None = None
    findings: Sequence[Finding] = ()
    closest: Better | None = None
    smaller_model: str = ""
    proof_bytes: int = 0
    tries: int = 0

    @property
    def fits(self) -> bool:
        """Whether there is a config that is predicted to fit."""
        return bool(self.text)

    @property
    def only_stops(self) -> bool:
        """Whether the closest result would fit but the trainer refuses it."""
        return self.closest is not None and not self.closest.short_bytes and bool(self.subject.stops)
