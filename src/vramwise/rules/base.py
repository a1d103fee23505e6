"""What a rule is: a check with its severity, its examples and its documentation in one place.

A rule is a function decorated with `@rule(...)` in the module of its topic, named after its id. Its docstring is the
documentation page and the output of `vramwise explain`. `bad` and `good` are both tests and the page's examples. A rule
with one condition and one sentence is a row: see `rows.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from inspect import cleandoc
from typing import Any, Literal

from vramwise.timeline import MemoryReport
from vramwise.types import Change, Edit, Fix, Place, RunSpec, Severity


@dataclass(frozen=True, slots=True)
class Hit:
    """What a check yields: the fact with its numbers, then the consequence. `judge` adds rule, severity and place.

    A trainer's list of what it refuses (`refusals`) yields the same: `Hit(sentence, key, fix)`.

    A rule for every trainer names the `field` of RunSpec that it is about and the `change` that fixes it: the field's
    origin knows the key and its place, and the trainer spells the change. A trainer's own rule names the dotted `key`
    and gives the `fix` as edits. If the key is not in the file, the finding is about the file as a whole (START).
    `severity` overrides the rule's own for a weaker or stronger case.

    `by_request`: the change keeps the result but has a cost, so it is made only if the user asks for it. `pedantic`:
    harmless, reported only on request. `still_runs`: see Rule.
    """

    message: str
    key: str | None = None
    fix: Fix | None = None
    _: KW_ONLY
    field: str | None = None
    place: Place | None = None  # if neither field nor key determines it
    change: Change | None = None
    severity: Severity | None = None
    by_request: bool = False
    pedantic: bool = False
    still_runs: bool = False


Check = Callable[[RunSpec, MemoryReport | None], Iterator[Hit]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A check and everything a user needs to know about it."""

    id: str
    severity: Severity
    topic: str
    needs: frozenset[str]
    bad: str
    good: str
    # Command-line options for judging the examples, e.g. "--gpu t4"; good_options replaces them for `good`.
    options: str
    good_options: str
    # Why this is an error or trap although the trainer accepts the file; "" if the trainer itself complains.
    beyond_trainer: str
    run: Check
    # Severities of weaker or stronger cases, besides `severity`.
    also: tuple[Severity, ...] = ()
    # It only costs memory: if the card has room to spare, it is only an info.
    costs_memory: bool = False
    # `check` predicts the run with its remedy and reports both; "fixed segments": only without expandable segments.
    # "fast numbers": it says what fp8 or torch.compile costs and brings as the file has it.
    figured: Literal["no", "yes", "fixed segments", "fast numbers"] = "no"
    # What happens to a finding whose remedy is predicted to save nothing.
    without_gain: Literal["stays", "lighter", "dropped"] = "stays"
    # An info if the run fits even with full rows; the data's rows may be shorter.
    lighter_at_full_rows: bool = False
    # Run settings with the remedy, if no edit of the file achieves it.
    remedied: Mapping[str, Any] = field(default_factory=dict)
    # The whole file is unusable: it has values that its keys do not accept.
    unusable: bool = False
    # The run does not fit its card.
    misfit: bool = False
    # Its errors do not stop the run, which then trains something else than the file says.
    still_runs: bool = False
    # The causes in `diagnose`, by id, that it explains.
    explains: frozenset[str] = frozenset()
    # Its findings are shown before all others, which rest on them.
    comes_first: bool = False
    # It is about what a release of the trainer does: see `judge`.
    of_release: bool = False
    # It does not apply to the embedded engine.
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
        """Every severity that it may report, weakest first."""
        weakened = (Severity.INFO,) if self.costs_memory or self.lighter_at_full_rows else ()
        return tuple(sorted({self.severity, *self.also, *weakened}, key=lambda one: one.rank))

    @property
    def shown_severity(self) -> str:
        """Its severity, and in parentheses those of weaker and stronger cases: `warning (info)`."""
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
    severity: Severity = Severity.ERROR,
    topic: str = "",
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

    `topic`: not given in a module that is named after it. `more`: attributes of Rule that most rules leave at their
    defaults.
    """
    if (topic and topic not in TOPICS) or not needs <= NEEDS:
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
    """Return rules in reading order: topic by topic, within each in the given order."""
    return sorted(rules, key=lambda one: TOPICS.index(one.topic))


def set_key(key: str, value: object) -> Edit:
    """Return an edit that changes the value of a key in the file."""
    return Edit(op="set", key=key, value=value)


def insert_key(key: str, value: object, *, beside: str) -> Edit:
    """Return an edit that adds a key after a related one (a key that already exists is set)."""
    return Edit(op="insert", key=key, value=value, beside=beside)


def delete_key(key: str) -> Edit:
    """Return an edit that removes a key and its value."""
    return Edit(op="delete", key=key)


def safe(title: str, *edits: Edit) -> Fix:
    """Return a fix that does not change the training result."""
    return Fix(title=title, safe=True, edits=edits)


def unsafe(title: str, *edits: Edit) -> Fix:
    """Return a fix that changes numerics, data or speed, so that the user must agree to it."""
    return Fix(title=title, safe=False, edits=edits)


def as_written(run: RunSpec, field: str) -> str | None:
    """Return `key: value` as in the file; None if no key of the file decided the setting, or a whole block did."""
    key = run.origins[field].key
    value = None if key is None else run.config.get(key)
    if isinstance(value, bool):
        return f"{key}: {str(value).lower()}"
    return f"{key}: {value}" if isinstance(value, str | int | float) else None
