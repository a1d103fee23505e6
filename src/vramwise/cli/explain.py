"""`vramwise explain ID`: the documentation page of a rule, or a key of a trainer."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import click

from vramwise.api import explain, rules
from vramwise.cli.options import completed
from vramwise.cli.writing import say_all
from vramwise.lookup.keys import KeyPage, known_keys, listing_trainers, look_up
from vramwise.render.json_text import json_text
from vramwise.render.outward import style
from vramwise.rules.base import Rule


@click.command("explain")
@click.argument("name", metavar="ID|KEY", shell_complete=completed("complete_rules"))
@click.option("--trainer", metavar="NAME", help="The trainer the key belongs to (default: every trainer that has it).")
def command(name: str, trainer: str | None) -> None:
    """Explain a rule (why it matters, an example, the fix) or a config key (its values and its effect on memory)."""
    if trainer is None and not _is_key(name):
        say_all(_page(explain(name)))
        return
    pages = look_up(name, trainer)
    say_all(line for number, page in enumerate(pages) for line in [*[""] * (number > 0), *_key_page(page)])


def _is_key(name: str) -> bool:
    """Return whether a name is a key.

    Rules are written with hyphens, keys with underscores; a single word is a key if a trainer has it.
    """
    if name.strip() in {rule.id for rule in rules()}:
        return False
    return "_" in name or "." in name or any(name.strip() in known_keys(one) for one in listing_trainers())


def _key_page(page: KeyPage) -> Iterator[str]:
    yield f"{style(page.key, bold=True)} ({page.trainer})"
    if page.memory:
        yield f"  Memory: {page.memory}"
    for one in page.versions:
        known = f"{one.versions[0]} to {one.versions[-1]}" if len(one.versions) > 1 else one.versions[0]
        default = "" if one.default is None else f"; default {json_text(one.default)}"
        yield f"  {known}: {one.takes}{default}"
        if one.deprecated:
            yield f"    {one.deprecated}"
    if page.names:
        yield f"  Names: {', '.join(page.names)}"
    if page.needs:
        yield f"  Used only when this plugin is listed: {page.needs}"
    if page.rules:
        yield f"  Rules: {', '.join(page.rules)}"


def _page(rule: Rule) -> list[str]:
    parts = [
        f"{style(rule.id, bold=True)} ({_severity(rule)}): {rule.title}",
        rule.documentation,
    ]
    if rule.beyond_trainer:
        parts.append(f"Not checked by the trainer: {rule.beyond_trainer}")
    parts.append(_example("Bad", rule.bad, rule.options))
    parts.append(_example("Good", rule.good, rule.good_options))
    parts.append(f"To ignore it, add this comment to the line: # vramwise: ignore[{rule.id}] reason")
    return "\n\n".join(parts).split("\n")


def _severity(rule: Rule) -> str:
    others = " or ".join(one.value for one in rule.severities if one is not rule.severity)
    return f"{rule.severity.value}, in other cases {others}" if others else rule.severity.value


def _example(title: str, text: str, options: str) -> str:
    under = f" (under {options})" if options else ""
    return f"{style(title, bold=True)}{under}:\n{textwrap.indent(text.rstrip(), '    ')}"
