"""`vramwise`: the command group. Commands are imported when they are called, so that each starts fast."""

from __future__ import annotations

import gc
import importlib
import os
import sys

import click

from vramwise import __version__
from vramwise.errors import VramwiseError

# name → one line for --help; the command `name` lives in cli/name.py
COMMANDS = {
    "check": "Judge configs against the memory rules.",
    "fix": "Mend configs: only the lines that must change.",
    "predict": "Predict what a run will allocate and reserve, without a GPU.",
    "train": "Train a config: checked, predicted, guarded, recovering from an out-of-memory.",
    "diagnose": "Explain an out-of-memory or dtype failure from its log, config and snapshot.",
    "report": "Show predicted against measured memory of a training run.",
    "replay": "Replay a torch memory snapshot, also under other allocator settings.",
    "rules": "List the rules.",
    "explain": "Explain one rule: why it hurts, an example, the remedy.",
    "gpus": "List the cards vramwise knows.",
}


class LazyGroup(click.Group):
    """A group whose commands are imported only when one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in reading order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"vramwise.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command list of --help, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="vramwise")
def cli() -> None:
    """Keep LLM fine-tuning inside GPU memory.

    Start with: vramwise check config.yml --gpu rtx-4090
    """


def main() -> None:
    """Run; a user's mistake is one sentence on stderr and exit code 2 (VRAMWISE_TRACEBACK=1 shows the traceback)."""
    # Commands make many small objects that live to the end: looking for garbage every 700 of them costs a tenth.
    gc.set_threshold(200_000, 50, 50)
    try:
        cli(prog_name="vramwise")
    except VramwiseError as error:
        if os.environ.get("VRAMWISE_TRACEBACK"):
            raise
        click.echo(f"{click.style('error', fg='red', bold=True)}: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        # The reader went away (`| head`): that is its right.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception:
        # Exit code 1 means findings; a bug must not look like one.
        import traceback

        traceback.print_exc()
        click.echo("this is a bug in vramwise: please report it with the lines above", err=True)
        sys.exit(2)
