"""`vramwise doctor`: versions, card and installed packages, as one block for a bug report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from vramwise import __version__
from vramwise.cli.writing import say, say_all
from vramwise.facts.context import usable_bytes
from vramwise.render.json_text import json_text
from vramwise.render.knowledge import gpu_json
from vramwise.units import gib
from vramwise.verbs.doctor import Installation, doctor


@click.command("doctor")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(output_format: str) -> None:
    """Show versions, the card and what is installed, to paste into a bug report.

    Packages are those of the Python that runs vramwise. None of them is imported.
    """
    found = doctor()
    if output_format == "json":
        say(*json_text(_json(found), indent=2).split("\n"))
    else:
        say_all(_lines(found))


def _lines(found: Installation) -> Iterator[str]:
    yield f"vramwise {__version__}, Python {found.python}, {found.system}"
    yield f"card: {_card(found)}"
    yield f"installed: {_listed(f'{name} {version}' for name, version in found.packages.items() if version)}"
    yield f"not installed: {_listed(name for name, version in found.packages.items() if not version)}"
    yield f"variables: {_listed(f'{name}={value}' for name, value in found.variables.items())}"


def _listed(words: Iterator[str]) -> str:
    return ", ".join(words) or "none"


def _card(found: Installation) -> str:
    driver = "no NVIDIA driver" if found.driver is None else f"driver {found.driver}"
    if found.card is None:
        return f"none ({driver})"
    return f"{found.cards} × {found.card.name}, {gib(found.card.memory_bytes)} ({driver})"


def _json(found: Installation) -> dict[str, Any]:
    return {
        "version": 1,
        "vramwise": __version__,
        "python": found.python,
        "system": found.system,
        "card": None if found.card is None else gpu_json(found.card, usable_bytes(found.card)),
        "cards": found.cards,
        "driver": found.driver,
        "packages": dict(found.packages),
        "variables": dict(found.variables),
    }
