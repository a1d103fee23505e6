"""What a rule finds, and the changes and edits that fix it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from vramwise.types.document import START, Place


class Severity(Enum):
    """How bad a finding is. ERROR: refused by the trainer, or certain to fail or to do something else than written."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for info, 1 for warning, 2 for error."""
        return ("info", "warning", "error").index(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that may be altered about a run, in RunSpec's words, and what that does to the training.

    `effect`: "same", training gives the same result (same effective batch, same data, same numerics); "rounding", the
    same mathematics in other kernels; "changes", another training. `why` says so for a person. `fields` holds RunSpec
    fields with their new values, or words of `variants.changes` for settings that no field stands for.
    """

    id: str
    title: str
    effect: Literal["same", "rounding", "changes"]
    why: str
    fields: Mapping[str, Any]

    @property
    def safe(self) -> bool:
        """Whether training gives the same result."""
        return self.effect == "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of a config value. `beside`: where to insert a key that is not there yet (after that key)."""

    op: Literal["set", "insert", "delete"]
    key: str
    value: Any = None
    beside: str | None = None


_EFFECTS = {
    "same": "same result, at a cost",
    "rounding": "same math, different kernels",
    "changes": "changes the training",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A remedy. Safe = the training result stays the same: same effective batch, same numerics, same data."""

    title: str
    safe: bool
    edits: tuple[Edit, ...]
    # The change that the edits spell, where one stands behind them: what it does to the training, and why.
    change: Change | None = None

    @property
    def effect_words(self) -> str:
        """What it does to the training. Empty for a safe fix, which gives the same result at no price."""
        return "" if self.safe else _EFFECTS["changes" if self.change is None else self.change.effect]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule found, where, and how to fix it."""

    rule: str
    severity: Severity
    message: str
    key: str | None
    place: Place
    fix: Fix | None = None
    # An error with which the run starts all the same: it trains something else than the file says.
    still_runs: bool = False

    @property
    def line(self) -> int | None:
        """The line that it is about; None where it is about the file as a whole, as where a key is missing."""
        return None if self.place == START else self.place.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A rule that could not judge, and what it would have needed."""

    rule: str
    needs: str
