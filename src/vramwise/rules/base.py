"""What a rule is: a check with its severity, its examples and its documentation in one place.

A rule module holds one function, decorated with `@rule(...)`, named `check`; its docstring is the documentation page
and what `vramwise explain` prints. `bad` and `good` are the test, the page's example and the explanation in one. Rules
of one condition and one sentence can share a module: see `rows.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import cleandoc
from typing import Any, Literal

from vramwise.timeline import MemoryReport
from vramwise.types import Change, Edit, Fix, Place, RunSpec, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """What a check yields: the fact with its numbers, then the consequence. `judge` adds rule, severity and place.

    A rule that holds for every trainer names the `field` of RunSpec that it is about and the `change` that fixes it:
    the field's origin knows the key and its place, the trainer spells the change. A trainer's own rule names the dotted
    `key` and gives the `fix` as edits. Where that is not written in the file, the finding is about the file as a whole
    (START). `severity` overrides the rule's own for a weaker or stronger case.
    `by_request`: the change keeps the result but has a price, so that it is made only where the user asks for it.
    `pedantic`: harmless: reported only on request. `still_runs`: see Rule.
    """

    message: str
    field: str | None = None
    key: str | None = None
    place: Place | None = None  # where neither field nor key can say it
    change: Change | None = None
    fix: Fix | None = None
    severity: Severity | None = None
    by_request: bool = False
    pedantic: bool = False
    still_runs: bool = False


Check = Callable[[RunSpec, MemoryReport | None], Iterator[Hit]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A check and everything a person needs to know about it."""

    id: str
    severity: Severity
    topic: str
    needs: frozenset[str]
    bad: str
    good: str
    # Command-line options under which the examples are judged, e.g. "--gpu t4"; good_options replaces them for `good`.
    options: str
    good_options: str
    # Why this is an error or trap although the trainer accepts the file; "" where the trainer itself complains.
    beyond_trainer: str
    run: Check
    # Severities of weaker or stronger cases, besides `severity`.
    also: tuple[Severity, ...] = ()
    # It hurts by the memory it takes, and by nothing else: where the card has room to spare, it only informs.
    costs_memory: bool = False
    # `check` predicts the run with its remedy and reports both; "fixed segments": only where segments do not grow.
    figured: Literal["no", "yes", "fixed segments"] = "no"
    # What becomes of a finding whose remedy is predicted to save nothing here.
    without_gain: Literal["stays", "lighter", "dropped"] = "stays"
    # The run fits even with full rows, and rows that are as long as the data may be shorter: a note.
    lighter_at_full_rows: bool = False
    # Settings of the run with its remedy, where no edit of the file makes it.
    remedied: Mapping[str, Any] = field(default_factory=dict)
    # The file as a whole is unusable: it holds values that its keys do not take.
    unusable: bool = False
    # The run does not fit its card.
    misfit: bool = False
    # Its errors do not stop the run: it trains something else than the file says.
    still_runs: bool = False
    # Causes of a failure, by their ids in `diagnose`, that it explains.
    explains: frozenset[str] = frozenset()
    # The embedded engine makes it moot.
    moot_when_embedded: bool = False

    @property
    def title(self) -> str:
        """The first line of the check's docstring."""
        return self._text.partition("\n")[0].strip()

    @property
    def documentation(self) -> str:
        """The rest of the check's docstring."""
        return self._text.partition("\n")[2].strip()

    @property
    def _text(self) -> str:
        return cleandoc(self.run.__doc__ or "")

    @property
    def severities(self) -> tuple[Severity, ...]:
        """Every severity that it may fire with, the weakest first."""
        weakened = (Severity.INFO,) if self.costs_memory or self.lighter_at_full_rows else ()
        return tuple(sorted({self.severity, *self.also, *weakened}, key=lambda one: one.rank))

    @property
    def shown_severity(self) -> str:
        """Its severity, and in brackets those of weaker and stronger cases: `warning (info)`."""
        others = ", ".join(one.value for one in self.severities if one is not self.severity)
        return f"{self.severity.value} ({others})" if others else self.severity.value


TOPICS: tuple[str, ...] = (
    "batch",
    "shapes",
    "eval",
    "precision",
    "method",
    "optimizer",
    "checkpointing",
    "attention",
    "loss",
    "sharding",
    "allocator",
    "host",
    "config",
)
NEEDS = frozenset({"gpu", "model", "memory"})


def rule(
    *,
    id: str,  # noqa: A002 - the word rule authors expect
    severity: Severity,
    topic: str,
    bad: str,
    good: str,
    needs: frozenset[str] | set[str] = frozenset(),
    options: str = "",
    good_options: str | None = None,
    beyond_trainer: str = "",
    also: tuple[Severity, ...] = (),
    explains: set[str] | frozenset[str] = frozenset(),
    **more: Any,
) -> Callable[[Check], Rule]:
    """Turn a check function into a Rule; its docstring is the documentation.

    `more`: attributes of Rule that most rules leave at their defaults.
    """
    if topic not in TOPICS or not needs <= NEEDS:
        raise ValueError(f"rule {id}: unknown topic or need")

    def wrap(check: Check) -> Rule:
        return Rule(
            id=id,
            severity=severity,
            topic=topic,
            needs=frozenset(needs),
            bad=bad,
            good=good,
            options=options,
            good_options=options if good_options is None else good_options,
            beyond_trainer=beyond_trainer,
            run=check,
            also=also,
            explains=frozenset(explains),
            **more,
        )

    return wrap


def by_topic(rules: Iterable[Rule]) -> list[Rule]:
    """Rules in reading order: topic by topic, in each as they are listed."""
    return sorted(rules, key=lambda one: TOPICS.index(one.topic))


def set_key(key: str, value: object) -> Edit:
    """Change the value of a key that is in the file."""
    return Edit(op="set", key=key, value=value)


def insert_key(key: str, value: object, *, beside: str) -> Edit:
    """Add a key after a related one (a key that turns out to be there already is set)."""
    return Edit(op="insert", key=key, value=value, beside=beside)


def delete_key(key: str) -> Edit:
    """Remove a key and its value."""
    return Edit(op="delete", key=key)


def safe(title: str, *edits: Edit) -> Fix:
    """A fix after which training gives the same result."""
    return Fix(title=title, safe=True, edits=edits)


def unsafe(title: str, *edits: Edit) -> Fix:
    """A fix that changes numerics, data or speed in a way the user must want."""
    return Fix(title=title, safe=False, edits=edits)


def as_written(run: RunSpec, field: str) -> str | None:
    """`key: value` as the file has it; None where no key of the file decided the setting, or a whole block did."""
    key = run.origins[field].key
    value = None if key is None else run.config.get(key)
    if isinstance(value, bool):
        return f"{key}: {str(value).lower()}"
    return f"{key}: {value}" if isinstance(value, str | int | float) else None
