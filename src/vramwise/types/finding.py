"""Findings of rules, and the changes and edits that fix them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from vramwise.types.document import START, Place


class Severity(Enum):
    """How bad a finding is.

    ERROR: the trainer refuses the config, or the run is certain to fail or to do something other than the config says.
    """

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for info, 1 for warning, 2 for error."""
        return ("info", "warning", "error").index(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One possible change to a run, as settings of RunSpec, and its effect on training.

    `effect` is "same" (the result stays the same: same effective batch, data and numerics), "rounding" (the same
    mathematics in other kernels) or "changes" (a different training). `why` explains that to the user. `fields` maps
    RunSpec fields, or keywords of `variants.changes` for settings without a field, to their new values.
    """

    id: str
    title: str
    effect: Literal["same", "rounding", "changes"]
    why: str
    fields: Mapping[str, Any]

    @property
    def safe(self) -> bool:
        """Whether training gives the same result with this change."""
        return self.effect == "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of a config value. `beside`: the key after which a new key is inserted."""

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
    """A remedy for a finding. Safe means that the training result stays the same (batch size, numerics, data)."""

    title: str
    safe: bool
    edits: tuple[Edit, ...]
    # The change that the edits express, if there is one: its effect on training, and why.
    change: Change | None = None

    @property
    def effect_words(self) -> str:
        """Describe the effect on training; empty for a safe fix."""
        return "" if self.safe else _EFFECTS["changes" if self.change is None else self.change.effect]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem that a rule found: the place, the message and the fix."""

    rule: str
    severity: Severity
    message: str
    key: str | None
    place: Place
    fix: Fix | None = None
    # An error that does not keep the run from starting: it trains something other than the file says.
    still_runs: bool = False
    # Shown before all others, which rest on it.
    comes_first: bool = False

    @property
    def line(self) -> int | None:
        """The line of the finding; None if it concerns the whole file, such as a missing key."""
        return None if self.place == START else self.place.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A rule that was not applied, and what it would have needed."""

    rule: str
    needs: tuple[str, ...]
