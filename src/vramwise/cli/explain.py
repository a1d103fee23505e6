"""`vramwise explain ID`: one rule, as its documentation page has it."""

from __future__ import annotations

import textwrap

import click

from vramwise.api import explain
from vramwise.cli.completion import complete_rules
from vramwise.cli.writing import say_all
from vramwise.render.outward import style
from vramwise.rules.base import Rule


@click.command("explain")
@click.argument("rule_id", metavar="ID", shell_complete=complete_rules)
def command(rule_id: str) -> None:
    """Explain one rule: why it hurts, an example, the remedy."""
    say_all(_page(explain(rule_id)))


def _page(rule: Rule) -> list[str]:
    parts = [
        f"{style(rule.id, bold=True)} ({_severity(rule)}): {rule.title}",
        rule.documentation,
    ]
    if rule.beyond_trainer:
        parts.append(f"Beyond the trainer's own checks: {rule.beyond_trainer}")
    parts.append(_example("Bad", rule.bad, rule.options))
    parts.append(_example("Good", rule.good, rule.good_options))
    parts.append(f"Silence it on its line with: # vramwise: ignore[{rule.id}] reason")
    return "\n\n".join(parts).split("\n")


def _severity(rule: Rule) -> str:
    others = " or ".join(one.value for one in rule.severities if one is not rule.severity)
    return f"{rule.severity.value}, in other cases {others}" if others else rule.severity.value


def _example(title: str, text: str, options: str) -> str:
    under = f" (under {options})" if options else ""
    return f"{style(title, bold=True)}{under}:\n{textwrap.indent(text.rstrip(), '    ')}"
