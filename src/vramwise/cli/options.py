"""Options that several commands share; with them, the command that was given can be shown again with a change."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import join
from typing import Any

import click

from vramwise.opening.options import Command, Options
from vramwise.trainers.registry import TRAINER_NAMES

Decorated = Callable[..., Any]

FORMATS = ("text", "json", "sarif", "github")
SEVERITIES = ("error", "warning", "info")
_TRAINERS = ", ".join(TRAINER_NAMES)
# The parameters that `target_options` adds to a command.
SOURCE_OPTIONS = ("settings", "script_args", "call")
TARGET_OPTIONS = ("gpu", "gpus", "torch", "versions", "stack", "trainer", "alloc_conf", "launcher")


def completed(name: str) -> Callable[..., Any]:
    """Return a completion function of `completion.py` by name, which is loaded when the shell asks."""

    def complete(*asked: Any) -> Any:
        from vramwise.cli import completion

        return getattr(completion, name)(*asked)

    return complete


def terminal_width() -> int | None:
    """Return the columns of the terminal; None if the output is not one, so that lines stay whole for programs."""
    if not sys.stdout.isatty():
        return None
    import shutil  # only for terminals, and slow to load

    return max(40, shutil.get_terminal_size().columns)


def target_options(command: Decorated) -> Decorated:
    """Add --gpu, --gpus, --torch, --with, --stack, --trainer, --alloc-conf and --launcher: the target machine."""
    for option in reversed(
        (
            click.option(
                "--gpu",
                metavar="NAME|SIZE",
                shell_complete=completed("complete_cards"),
                help=(
                    "Card, e.g. rtx-4090, a100-80gb, 8xH100, or a memory size such as 24GB (default: this machine's "
                    "GPU, if any)."
                ),
            ),
            click.option(
                "--gpus",
                type=click.IntRange(min=1),
                metavar="N",
                help="Number of GPUs (default: 1 with --gpu, otherwise all in this machine).",
            ),
            click.option("--torch", metavar="VERSION", help="torch version, e.g. 2.8 (default: the installed one)."),
            click.option(
                "--with",
                "versions",
                metavar="PACKAGE==VERSION",
                multiple=True,
                help="Version of a package used in the run, e.g. the trainer. Repeatable.",
            ),
            click.option(
                "--stack",
                metavar="FILE",
                help="Read versions from a requirements file, `pip freeze` output or uv.lock.",
            ),
            click.option(
                "--trainer",
                metavar="NAME",
                help=f"Trainer of the config: {_TRAINERS} (default: recognised from its keys).",
            ),
            click.option(
                "--alloc-conf",
                metavar="SETTINGS",
                help=(
                    "Allocator settings of the run; '' for torch's defaults (default: PYTORCH_*ALLOC_CONF from the "
                    "environment)."
                ),
            ),
            click.option(
                "--launcher",
                type=click.Choice(["cli", "module"]),
                help="How training starts: the trainer's command (default) or its module (python -m, accelerate -m).",
            ),
        )
    ):
        command = option(command)
    return command


def source_options(command: Decorated) -> Decorated:
    """Add --set, --args and --call: what a script or notebook leaves open."""
    for option in reversed(
        (
            click.option(
                "--set",
                "settings",
                metavar="NAME=VALUE",
                multiple=True,
                help="Set a config key, or a value that a script leaves open. Repeatable.",
            ),
            click.option(
                "--args", "script_args", metavar="LINE", default="", help="Command-line arguments of the script."
            ),
            click.option(
                "--call", type=click.IntRange(min=1), metavar="N", help="Which trainer call of a script to use."
            ),
        )
    ):
        command = option(command)
    return command


def model_options(command: Decorated) -> Decorated:
    """Add --model and --online: which model, and whether the hub is asked for its dimensions."""
    for option in (
        click.option(
            "--online/--offline",
            default=True,
            show_default=True,
            help="Fetch the config.json of unknown models from the hub.",
        ),
        click.option(
            "--model",
            metavar="ID|PATH",
            shell_complete=completed("complete_models"),
            help="Use this model instead of the config's: a hub id, a folder or a config.json.",
        ),
    ):
        command = option(command)
    return command


def data_option(command: Decorated) -> Decorated:
    """Add --data: the data whose row lengths are used."""
    return click.option(
        "--data",
        metavar="FILE|FOLDER",
        help="Read row lengths from this data: jsonl, json, csv or parquet (default: local files named in the config).",
    )(command)


def rule_options(command: Decorated) -> Decorated:
    """Add --ours-only, --predict, --select, --ignore, --min-severity and --pedantic: which findings count."""
    for option in reversed(
        (
            click.option(
                "--ours-only",
                is_flag=True,
                help="Skip files that are not training configs, even unreadable ones. For pre-commit hooks.",
            ),
            click.option(
                "--predict/--no-predict",
                default=None,
                help="Also predict memory and check it (default: on for a single file with a known model and a card).",
            ),
            click.option(
                "--select",
                metavar="ID,ID",
                multiple=True,
                help="Run only these rules.",
                shell_complete=completed("complete_rules"),
            ),
            click.option(
                "--ignore",
                metavar="ID,ID",
                multiple=True,
                help="Skip these rules.",
                shell_complete=completed("complete_rules"),
            ),
            click.option(
                "--min-severity",
                type=click.Choice(SEVERITIES),
                help="Report and fail at this severity or above (default: report info, fail at warning).",
            ),
            click.option(
                "--pedantic/--no-pedantic",
                default=None,
                help="Also report harmless issues: old spellings that still work, numbers written as text, empty keys.",
            ),
        )
    ):
        command = option(command)
    return command


def refuse_to_write_settings(settings: Sequence[str], paths: Sequence[str]) -> None:
    """Raise UsageError if --set would be written to a config; scripts are written without it."""
    if settings and not all(path.endswith((".py", ".ipynb")) for path in paths):
        raise click.UsageError("--set changes the config for this command only: write it into the file, then run again")


def from_words(words: Sequence[str]) -> str | None:
    """Return the path, or the launch line as a Command; None without words."""
    if not words:
        return None
    if len(words) == 1:
        return words[0]
    if _starts(words):
        return Command(join(words))
    raise click.UsageError(f"Got unexpected extra arguments ({' '.join(words[1:])})")


def all_from_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return paths as they are, or a launch line as one Command."""
    return (Command(join(words)),) if len(words) > 1 and _starts(words) else tuple(words)


def _starts(words: Sequence[str]) -> bool:
    if Path(words[0]).exists():  # a folder may be named like a program
        return False
    from vramwise.trainers.launch import is_launch  # late: few commands are launch lines

    return is_launch(words)


def command_again(
    verb: str, run: str | Sequence[str], options: Options, more: Mapping[str, object], *, online: bool = True
) -> str:
    """Return the command without its changes and outputs.

    `run`: the config's path, or the words that describe a run without one. `more`: further options by name; None and ()
    are left out.
    """
    words = ["vramwise", verb, *([run] if isinstance(run, str) else run)]
    names = [name for name in (*TARGET_OPTIONS, "data", "call") if name != "versions"]
    said: dict[str, object] = {name: getattr(options, name) for name in names}
    said |= {"args": options.script_args or None, "set": options.settings}
    for name, value in {**said, **more}.items():
        values = value if isinstance(value, tuple) else () if value is None else (value,)
        for one in values:
            words += [f"--{name.replace('_', '-')}", str(one)]
    for version in options.versions:
        words += ["--with", version]
    return shlex.join(words if online else [*words, "--offline"])
