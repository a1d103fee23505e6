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
    help="Training engine (default: the config's trainer if installed, otherwise the embedded transformers).",
)
@click.option(
    "--force",
    is_flag=True,
    help="Start despite errors, a predicted out-of-memory, or a checkpoint with other settings.",
)
@click.option(
    "--no-recover", is_flag=True, help="After an out-of-memory error, stop instead of restarting with a smaller batch."
)
@click.option("--resume", is_flag=True, help="Resume from the last complete checkpoint in output_dir.")
@click.option("--fresh", is_flag=True, help="Start from scratch, keeping existing checkpoints.")
@click.option("--resume-from", metavar="FOLDER", help="Resume from this checkpoint, which may be another trainer's.")
@click.option(
    "--trust-remote-code", is_flag=True, help="Allow trust_remote_code in the config to run the model's own code."
)
@click.option("--random-weights", is_flag=True, help="Train from random weights; the model folder needs none.")
@click.option("--memory-limit", metavar="SIZE", help="Limit what the allocator may reserve, e.g. 29000MiB.")
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
    """Train a config. Memory is checked and predicted first, and the run recovers from out-of-memory errors.

    Exit code: 0 trained to the end, 1 stopped before the first step, 2 bad usage or unreadable input, 75 out of memory
    after all retries, 130 and 143 after a signal (with a checkpoint); otherwise the engine's own.
    """
    if fresh and (resume or resume_from):
        raise click.UsageError("--fresh starts from scratch and --resume continues: use only one")
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
