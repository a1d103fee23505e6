"""The results of the tools. The SDK derives output schemas from these classes; the values follow the JSON contracts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class Checked:
    """The findings about a config."""

    summary: str
    clean: bool  # no finding of severity warning or error
    fits: bool | None  # on the card; null if nothing was predicted
    trainer: str | None
    findings: list[dict[str, Any]]
    error: dict[str, Any] | None = None
    not_predicted: str | None = None
    next: str = ""


@dataclass(kw_only=True)
class Fixed:
    """A config after fixing: `config` is the whole new text."""

    summary: str
    changed: bool
    config: str
    diff: str
    applied: list[dict[str, Any]]
    refused: list[dict[str, Any]]
    clean: bool
    fits: bool | None
    remaining: list[dict[str, Any]]
    error: dict[str, Any] | None = None
    next: str = ""


@dataclass(kw_only=True)
class Predicted:
    """What a run will need; `prediction` is the whole of `vramwise predict --format json`."""

    summary: str
    fits: bool | None
    peak_reserved_gib: float
    capacity_gib: float | None
    prediction: dict[str, Any]
    what_if: dict[str, Any] | None = None
    config: str = ""  # the text composed from `run`, if no config was given
    next: str = ""


@dataclass(kw_only=True)
class Fitted:
    """The fastest variant that fits: `config` is its whole text; where nothing fits, the text as it was."""

    summary: str
    fits: bool
    changed: bool
    config: str
    diff: str
    best: dict[str, Any] | None
    mistakes: list[str]  # rules that find an error in the config as it is
    original: dict[str, Any]
    alternatives: list[dict[str, Any]]
    closest: dict[str, Any] | None
    opened: list[dict[str, Any]]
    smallest_card: dict[str, Any] | None
    next: str = ""


@dataclass(kw_only=True)
class Started:
    """A new config: `config` is its whole text, "" where nothing fits; `new` is the whole of `new --format json`."""

    summary: str
    fits: bool
    config: str
    method: str
    launch: str
    new: dict[str, Any]
    next: str = ""


@dataclass(kw_only=True)
class Diagnosed:
    """What ended a run; `diagnosis` is the whole of `vramwise diagnose --format json`."""

    summary: str
    failed: bool
    diagnosis: dict[str, Any]
    next: str = ""


@dataclass(kw_only=True)
class Explained:
    """One rule: `page` is its documentation as Markdown."""

    rule: dict[str, Any]
    page: str
    bad: str
    good: str


@dataclass(kw_only=True)
class Practice:
    """What fits a question, the best first."""

    found: list[dict[str, Any]]
    next: str = ""


@dataclass(kw_only=True)
class Keys:
    """A key, once for each trainer that has it."""

    keys: list[dict[str, Any]]


@dataclass(kw_only=True)
class Listed:
    """A list, and how many there are where not all are shown."""

    total: int
    items: list[Any] = field(default_factory=list)
    next: str = ""
