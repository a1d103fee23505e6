"""`vramwise rules`: the list of rules."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import click

from vramwise.cli.writing import say_all
from vramwise.lookup.search import Found, search
from vramwise.render.json_text import json_text
from vramwise.render.knowledge import found_json, rule_json
from vramwise.render.outward import style
from vramwise.rules.base import TOPICS
from vramwise.trainers.rulebook import all_rules


@click.command("rules")
@click.argument("words", nargs=-1, metavar="[WORDS]...")
@click.option(
    "--search",
    "question",
    metavar="WORDS",
    help="Search rules, keys and pages by symptom or subject, best match first.",
)
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(words: tuple[str, ...], question: str | None, output_format: str) -> None:
    """List the rules by topic. `vramwise explain ID` shows the details.

    Brackets show the severity of milder and more severe cases. With WORDS, search by symptom or subject.

    Exit code: 0, or 1 if a search finds nothing.
    """
    if question is not None or words:
        question = " ".join(filter(None, (question, *words)))
        found = search(question)
        say_all(_found_json(found) if output_format == "json" else _found_lines(found, question))
        sys.exit(0 if found else 1)
    if output_format == "json":
        say_all(json_text({"version": 1, "rules": [rule_json(rule) for rule in all_rules()]}, indent=2).split("\n"))
    else:
        say_all(_lines())


def _lines() -> Iterator[str]:
    width = max(len(rule.id) for rule in all_rules())
    grades = max(len(rule.shown_severity) for rule in all_rules())
    for topic in TOPICS:
        listed = [rule for rule in all_rules() if rule.topic == topic]
        if listed:
            yield style(topic, bold=True)
            for rule in listed:
                yield f"  {rule.id.ljust(width)}  {rule.shown_severity.ljust(grades)}  {rule.title}"
    yield f"{len(all_rules())} rules"


def _found_lines(found: Sequence[Found], question: str) -> Iterator[str]:
    if not found:
        yield f"nothing found for '{question}': `vramwise rules` lists all rules"
    for one in found:
        entry = one.entry
        yield f"{style(entry.name, bold=True)} ({entry.kind}): {entry.title}"
        yield f"  {one.excerpt}"
        yield f"  {entry.see}"


def _found_json(found: Sequence[Found]) -> list[str]:
    by_id = {rule.id: rule for rule in all_rules()}
    rules = [rule_json(by_id[one.entry.name]) for one in found if one.entry.kind == "rule"]
    document = {"version": 1, "rules": rules, "found": [found_json(one) for one in found]}
    return json_text(document, indent=2).split("\n")
