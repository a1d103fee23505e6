"""The errors, except those about memory, that keep a run from starting."""

from __future__ import annotations

from collections.abc import Collection

from vramwise.errors import INTERNAL_ERROR
from vramwise.rules.judge import drop_suppressed, judge
from vramwise.timeline import MemoryReport
from vramwise.trainers.base import Trainer
from vramwise.trainers.rulebook import rules_for
from vramwise.types import Finding, RunSpec, Severity


def errors_of(run: RunSpec, trainer: Trainer, memory: MemoryReport | None = None) -> list[Finding]:
    """Return the errors that the rules find in a run without its memory prediction. Failing rules are left out.

    With `memory`, those of the rules that need it, except whether the run fits.
    """
    rules = rules_for(trainer)
    if memory is not None:
        rules = tuple(one for one in rules if "memory" in one.needs and one.topic != "allocator")
    findings, _ = judge(run, memory, rules, trainer.spell)
    return [found for found in findings if found.severity is Severity.ERROR and found.rule != INTERNAL_ERROR]


def stops_of(
    run: RunSpec, trainer: Trainer, ignored: Collection[str] = (), memory: MemoryReport | None = None
) -> tuple[Finding, ...]:
    """Return the errors that the user did not silence; those that keep the run from starting come first.

    `ignored`: rules silenced by options or project settings. Comments in the file are honoured too. `memory`: as for
    `errors_of`.
    """
    found = drop_suppressed(errors_of(run, trainer, memory), run.config.document.text)
    return tuple(sorted((one for one in found if one.rule not in ignored), key=lambda one: one.still_runs))
