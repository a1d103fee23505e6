"""Writes all output of a command to stdout or stderr.

Lines are neutralised (see render/outward.py). Only a config that `fix` passes on is written unchanged: it is the user's
own text on its way to a file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import click

from vramwise.render.folding import fold_all
from vramwise.render.outward import outward


def say(*lines: str, err: bool = False, commands: bool = False, color: bool | None = None) -> None:
    """Write lines; each argument is one line, whatever it contains. `commands`: they are CI commands."""
    say_all(lines, err=err, commands=commands, color=color)


def say_all(lines: Iterable[str], *, err: bool = False, commands: bool = False, color: bool | None = None) -> None:
    """Write lines; without lines, write nothing."""
    text = "".join(f"{outward(line, commands=commands)}\n" for line in lines)
    if text:
        click.echo(text, nl=False, err=err, color=color)


def say_note(note: str) -> None:
    """Write a note to stderr, unless it is empty."""
    if note:
        say(f"note: {note}", err=True)


def say_prose(lines: Iterable[str]) -> None:
    """Write text and figures; on a terminal, long lines are folded. Not for code, which is meant to be copied."""
    from vramwise.cli.options import terminal_width

    say_all(fold_all(lines, terminal_width()))


def pass_on(data: bytes, *, to_a_log: bool) -> None:
    """Write a user's own text: unchanged for programs, neutralised on a terminal or in a log."""
    if sys.stdout.isatty() or to_a_log:
        text = data.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n")
        say_all(text.split("\n") if text else ())
    else:
        click.echo(data, nl=False)


class Status:
    """One line on a terminal that is overwritten while the user waits. Elsewhere it shows nothing."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty() and not in_ci() and os.environ.get("TERM") != "dumb"
        self._wrote = False

    def __enter__(self) -> Status:
        return self

    def __exit__(self, *_: object) -> None:
        if self._wrote:
            click.echo("\r\x1b[K", nl=False, err=True)

    def show(self, text: str) -> None:
        """Show what is being done now."""
        if self._shown:
            import shutil  # only for terminals, and slow to load

            width = shutil.get_terminal_size().columns - 1
            click.echo(f"\r\x1b[K{outward(text)[:width]}", nl=False, err=True)
            self._wrote = True


def in_ci() -> bool:
    """Return whether a CI service reads the output."""
    return any(os.environ.get(name) for name in ("CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION"))
