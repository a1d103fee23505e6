"""What `new` gives: the config and what was decided on the way to it, or what is missing where nothing fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vramwise.subject import Subject
from vramwise.types import Finding, GpuSpec
from vramwise.variants.duration import Duration
from vramwise.variants.prediction import Prediction
from vramwise.variants.speed import Speed
from vramwise.verbs.starting.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Better:
    """A better method that does not fit: what it would reserve at least, and the smallest card for it."""

    method: str
    needs_bytes: int
    short_bytes: int
    card: GpuSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class New:
    """A new config. `text` is "" where nothing fits: then `closest` and what would fit are all there is.

    `subject` is the config as it is read from its text. `better`: the next better method that does not fit.
    `findings`: what `check` finds in it. `companions`: files that it needs besides, by path.
    `requirements`: what else must be true for it to start, and is not known here.
    `closest`: the method that misses by least; `smaller_model`: one of the family that fits.
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

    @property
    def fits(self) -> bool:
        """Whether there is a config, and it is predicted to run."""
        return bool(self.text)

    @property
    def only_stops(self) -> bool:
        """Whether the closest would fit, and the trainer refuses it."""
        return self.closest is not None and not self.closest.short_bytes and bool(self.subject.stops)
