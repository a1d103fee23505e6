"""Where a script does what a rule reports."""

from __future__ import annotations

from vramwise.types import Place, Script


def at_fact(script: Script, fact: str) -> Place:
    """Return the line of a fact as a place; that of the trainer's call if it has none."""
    line = script.facts.get(fact, script.line)
    return Place(line=line, column=1, end_line=line, end_column=1)
