"""Why a run does not start: the errors that `check` finds in it, memory apart."""

from __future__ import annotations

from collections.abc import Collection

from vramwise.errors import INTERNAL_ERROR
from vramwise.rules.judge import judge
from vramwise.rules.suppress import drop_suppressed
from vramwise.trainers.base import Trainer
from vramwise.trainers.rulebook import rules_for
from vramwise.types import Finding, RunSpec, Severity


def errors_of(run: RunSpec, trainer: Trainer) -> list[Finding]:
    """The errors that the rules find in a run, whatever its memory; a rule that fails itself is none."""
    findings, _ = judge(run, None, rules_for(trainer), trainer.spell)
    return [found for found in findings if found.severity is Severity.ERROR and found.rule != INTERNAL_ERROR]


def stops_of(run: RunSpec, trainer: Trainer, ignored: Collection[str] = ()) -> tuple[Finding, ...]:
    """The same without what the user silenced, those first that keep the run from starting.

    `ignored`: rules that options or the project's settings silence; comments in the file are honoured too.
    """
    found = drop_suppressed(errors_of(run, trainer), run.config.document.text)
    return tuple(sorted((one for one in found if one.rule not in ignored), key=lambda one: one.still_runs))
