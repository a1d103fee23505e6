"""`vramwise train`: run a config with the rules applied, guarded, and recovering."""

from __future__ import annotations

import sys
from typing import Any

import click

from vramwise.cli.options import TARGET_OPTIONS, target_options
from vramwise.cli.writing import say
from vramwise.options import Options
from vramwise.training.parent.engines import ENGINES
from vramwise.training.parent.prepare import TrainOptions
from vramwise.training.parent.run import train
from vramwise.units import parse_size


@click.command("train")
@click.argument("path", metavar="CONFIG")
@target_options
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    help="What trains. Default: the trainer the file is for where it is installed, else the embedded transformers.",
)
@click.option("--force", is_flag=True, help="Start in spite of errors, a misfit, or a checkpoint of other settings.")
@click.option("--no-recover", is_flag=True, help="After an out-of-memory, stop instead of restarting smaller.")
@click.option("--resume", is_flag=True, help="Go on from the last complete checkpoint in output_dir.")
@click.option("--fresh", is_flag=True, help="Begin anew beside the checkpoints that are there.")
@click.option("--resume-from", metavar="FOLDER", help="Go on from this checkpoint, also another trainer's.")
@click.option("--trust-remote-code", is_flag=True, help="Let trust_remote_code in the config run the model's own code.")
@click.option("--random-weights", is_flag=True, help="Train from random values: the model folder needs no weights.")
@click.option("--memory-limit", metavar="SIZE", help="The allocator may reserve no more, e.g. 29000MiB.")
def command(
    path: str,
    engine: str | None,
    force: bool,
    no_recover: bool,
    resume: bool,
    fresh: bool,
    resume_from: str | None,
    trust_remote_code: bool,
    random_weights: bool,
    memory_limit: str | None,
    **machine: Any,
) -> None:
    """Train a config: checked, predicted, guarded, and recovering from an out-of-memory.

    Exit code: 0 trained to the end, 1 stopped before the first step, 2 bad usage or unreadable input, 75 out of memory
    for good, 130 and 143 after a signal (with a checkpoint); else the engine's own.
    """
    if fresh and (resume or resume_from):
        raise click.UsageError("--fresh begins anew and --resume goes on: say one of them")
    options = TrainOptions(
        target=Options(**{name: machine[name] for name in TARGET_OPTIONS}),
        engine=engine,
        force=force,
        recover=not no_recover,
        resume=resume,
        fresh=fresh,
        resume_from=resume_from,
        trust_remote_code=trust_remote_code,
        random_weights=random_weights,
        memory_limit_bytes=None if memory_limit is None else parse_size(memory_limit),
    )
    sys.exit(train(path, options, say=say))
