"""`vramwise`: the command group. Commands are imported when they are called, so that each starts fast."""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import os
import sys
from pathlib import Path

import click

from vramwise import __version__
from vramwise.cli.writing import say
from vramwise.errors import VramwiseError
from vramwise.render.outward import style

# name → one line for --help; the command `name` lives in cli/name.py
COMMANDS = {
    "new": "Write a new config that fits: from a model, a card and data.",
    "check": "Check configs for GPU memory problems.",
    "fix": "Fix configs, changing only the lines that need it.",
    "predict": "Predict what a run will allocate and reserve, without a GPU.",
    "fit": "Find the fastest variant of a config that fits a card, shown as a diff.",
    "train": "Train a config, with memory checks before the run and recovery from out-of-memory errors.",
    "report": "Compare predicted and measured memory of a training run.",
    "diagnose": "Explain an out-of-memory or dtype failure from a log, config or snapshot.",
    "replay": "Replay a torch memory snapshot, optionally with other allocator settings.",
    "trace": "Record a model's own code, to predict models that vramwise does not know.",
    "rules": "List the rules, or search them by symptom.",
    "explain": "Explain a rule or a config key, with examples.",
    "gpus": "List the cards vramwise knows.",
    "schema": "Write a JSON schema of a trainer's config, for editors.",
    "serve": "Serve the web page on this machine.",
    "mcp": "Run the MCP server, for AI agents.",
    "doctor": "Show versions, the card and what is installed, for a bug report.",
}
# Examples at the end of a command's --help.
EXAMPLES = {
    "new": (
        "vramwise new meta-llama/Llama-3.1-8B --gpu rtx-4090 --data data.jsonl",
        "vramwise new Qwen/Qwen3-8B --gpu 8xh100 --data data.jsonl --method full --out full.yml",
        "vramwise new Qwen/Qwen3-4B --gpu t4 --data data.jsonl --trainer trl --as script --out train.py",
    ),
    "check": (
        "vramwise check config.yml --gpu rtx-4090",
        "vramwise check configs/ --gpu a100-80gb --gpus 8 --min-severity error",
        "vramwise check config.yml --show-resolved",
    ),
    "fix": ("vramwise fix --diff config.yml", "vramwise fix config.yml --unsafe-fixes"),
    "predict": (
        "vramwise predict config.yml --gpu 24GB --what-if micro_batch_size=1",
        "vramwise predict config.yml --cards --html report.html",
        "vramwise predict --model Qwen/Qwen3-8B --adapter qlora --sequence-len 4096 --gpu rtx-4090",
    ),
    "fit": (
        "vramwise fit config.yml --gpu rtx-4090",
        "vramwise fit config.yml --gpu rtx-4090 --allow qlora --keep sequence_len --write",
        "vramwise fit config.yml --gpu h100 --max sequence_len --html frontier.html",
    ),
    "train": ("vramwise train config.yml", "vramwise train config.yml --resume"),
    "report": ("vramwise report outputs/run --html report.html",),
    "diagnose": (
        "vramwise diagnose train.log --config config.yml",
        "accelerate launch … 2>&1 | vramwise diagnose -",
        "vramwise diagnose --snapshot snapshot.pickle --html page.html",
    ),
    "replay": ("vramwise replay snapshot.pickle --alloc-conf expandable_segments:True",),
    "trace": (
        "vramwise trace model-folder/ --out trace.json",
        "vramwise predict --model trace.json --adapter lora --gpu rtx-4090",
    ),
    "rules": ('vramwise rules --search "oom after eval"',),
    "explain": ("vramwise explain eval-batch-differs", "vramwise explain gradient_checkpointing"),
    "serve": ("vramwise serve --port 9000",),
    "mcp": ("claude mcp add vramwise -- vramwise mcp", "codex mcp add vramwise -- vramwise mcp"),
}
# Exit codes that all commands share.
BAD_USAGE = 2
INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group whose commands are imported only when one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all commands, in reading order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"vramwise.cli.{cmd_name}")
        command: click.Command = module.command
        if cmd_name in EXAMPLES:  # \b: keep the lines as they are
            command.epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in EXAMPLES[cmd_name])])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown word gets a hint."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no such command '{args[0]}': {_meant(args[0])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command list of --help without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _meant(word: str) -> str:
    from difflib import get_close_matches

    if Path(word).exists():
        return f"to check a config, run vramwise check {word}"
    close = get_close_matches(word, COMMANDS, n=2, cutoff=0.65)
    return f"did you mean {' or '.join(close)}?" if close else f"the commands are {', '.join(COMMANDS)}"


@click.command(
    cls=LazyGroup,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Keep LLM fine-tuning inside GPU memory.

    Start with: vramwise check config.yml --gpu rtx-4090
    """
    if ctx.invoked_subcommand is None:
        say(*ctx.get_help().split("\n"), err=True)
        ctx.exit(BAD_USAGE)


def main() -> None:
    """Run the command line. A user error is one sentence on stderr and exit code 2.

    VRAMWISE_TRACEBACK=1 shows the traceback.
    """
    # Commands create many small objects that live to the end: collecting garbage among them costs a tenth or more of
    # the time.
    gc.set_threshold(600_000, 50, 50)
    # At exit the system frees all memory: another garbage collection would cost another tenth.
    atexit.register(gc.freeze)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that the terminal lacks must not cause a failure
            stream.reconfigure(errors="replace")
    sys.exit(_run())


def _run() -> int:
    try:
        code = cli(prog_name="vramwise", standalone_mode=False, color=_colour())
    except click.UsageError as error:
        return _refuse(error.format_message(), *_see(error.ctx))
    except click.Abort:
        return INTERRUPTED
    except (VramwiseError, OSError) as error:
        if os.environ.get("VRAMWISE_TRACEBACK"):
            raise
        if isinstance(error, VramwiseError):
            return _refuse(str(error) if not error.further else error.sentence, *error.further)
        return _refuse(_system_error(error))
    except Exception:
        # Exit code 1 means findings; a bug must not look like one.
        import traceback

        say(*traceback.format_exc().rstrip("\n").split("\n"), err=True)
        say("this is a bug in vramwise: please report it with the lines above", err=True)
        return BAD_USAGE
    return code if isinstance(code, int) else 0


def _colour() -> bool | None:
    """Return False if the user or the terminal wants no colours (https://no-color.org), else None.

    None means colours on a terminal only.
    """
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def _refuse(sentence: str, *further: str) -> int:
    say(f"{style('error', fg='red', bold=True)}: {sentence}", *further, err=True, color=_colour())
    return BAD_USAGE


def _system_error(error: OSError) -> str:
    """Describe an OSError of the output, such as a full disk; named files have their own messages."""
    return f"cannot use {error.filename or 'the output'}: {error.strerror or error}"


def _see(ctx: click.Context | None) -> list[str]:
    return [] if ctx is None else [*ctx.get_usage().split("\n"), f"More: {ctx.command_path} --help"]
