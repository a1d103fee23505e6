"""`vramwise schema`: writes a trainer's keys as a JSON schema for editors."""

from __future__ import annotations

import click

from vramwise.cli.writing import say_all
from vramwise.lookup.json_schema import json_schema
from vramwise.lookup.keys import listing_trainers
from vramwise.opening.stacks import make_stack
from vramwise.render.json_text import json_text
from vramwise.trainers.registry import trainer_named


@click.command("schema")
@click.argument("trainer", metavar="TRAINER", type=click.Choice([one.name for one in listing_trainers()]))
@click.option(
    "--with",
    "versions",
    metavar="PACKAGE==VERSION",
    multiple=True,
    help="Version of the trainer (default: the installed one, otherwise the newest known).",
)
def command(trainer: str, versions: tuple[str, ...]) -> None:
    """Write a JSON schema of TRAINER's config files to stdout.

    Editors use it through yaml-language-server for completion, hover texts and type errors. The descriptions explain
    each key's effect on GPU memory.
    """
    found = trainer_named(trainer)
    stack = make_stack(found.package, found.releases(), said=versions)
    document = json_schema(found, stack.releases[found.package].version)
    say_all(json_text(document, indent=2).split("\n"))
