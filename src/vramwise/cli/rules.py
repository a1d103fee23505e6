"""`vramwise rules`: the list of rules."""

from __future__ import annotations

from collections.abc import Iterator

import click

from vramwise.cli.writing import say_all
from vramwise.render.json_text import json_text
from vramwise.render.outward import style
from vramwise.rules.base import TOPICS, Rule
from vramwise.trainers.rulebook import ALL_RULES


@click.command("rules")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(output_format: str) -> None:
    """List the rules, by topic. `vramwise explain ID` tells more.

    In brackets: the severity of weaker and stronger cases.
    """
    if output_format == "json":
        say_all(json_text({"version": 1, "rules": [_json(rule) for rule in ALL_RULES]}, indent=2).split("\n"))
    else:
        say_all(_lines())


def _lines() -> Iterator[str]:
    width = max(len(rule.id) for rule in ALL_RULES)
    grades = max(len(rule.shown_severity) for rule in ALL_RULES)
    for topic in TOPICS:
        listed = [rule for rule in ALL_RULES if rule.topic == topic]
        if listed:
            yield style(topic, bold=True)
            for rule in listed:
                yield f"  {rule.id.ljust(width)}  {rule.shown_severity.ljust(grades)}  {rule.title}"
    yield f"{len(ALL_RULES)} rules"


def _json(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.id,
        "severity": rule.severity.value,
        "severities": [severity.value for severity in rule.severities],
        "topic": rule.topic,
        "title": rule.title,
        "needs": sorted(rule.needs),
        "beyond_trainer": rule.beyond_trainer or None,
        "beyond_axolotl": rule.beyond_trainer or None,  # its first name, for those who read it
    }
