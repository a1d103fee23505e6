"""`vramwise train`: trains a config with checks, a memory guard and recovery."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from vramwise.cli.options import TARGET_OPTIONS, target_options
from vramwise.cli.writing import say
from vramwise.errors import VramwiseError
from vramwise.opening.options import Options
from vramwise.trainers.launch import is_launch
from vramwise.training.parent.engines import ENGINES
from vramwise.training.parent.prepare import TrainOptions
from vramwise.training.parent.run import train, train_script
from vramwise.units import parse_size


@click.command("train")
@click.argument("words", metavar="CONFIG|SCRIPT [ARGUMENTS]…", nargs=-1, required=True)
@target_options
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="For the prediction: a value that a script leaves open. Repeatable.",
)
@click.option("--call", type=click.IntRange(min=1), metavar="N", help="Which trainer call of a script trains.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    help="Training engine (default: the config's trainer if installed, otherwise the embedded transformers if it can).",
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
    words: tuple[str, ...],
    settings: tuple[str, ...],
    call: int | None,
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
    """Train a config, or run a training script. Memory is checked and predicted first, and the run recovers from
    out-of-memory errors.

    A script runs unmodified, with its arguments after --: vramwise train train.py -- --lr 1e-5. A launch command works
    too: vramwise train -- torchrun --nproc_per_node 2 train.py

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
    if words[0].endswith(".py") or (len(words) > 1 and is_launch(words)):
        target = replace(options.target, settings=settings, call=call)
        sys.exit(train_script(words, replace(options, target=target), say=say))
    if settings or call is not None:
        raise click.UsageError("--set and --call are for scripts: write the value into the config")
    if len(words) > 1:
        raise click.UsageError(f"Got unexpected extra arguments ({' '.join(words[1:])})")
    if words[0].endswith(".ipynb"):
        raise VramwiseError(f"{words[0]} is a notebook, which train does not run: use the memory guard in a cell")
    sys.exit(train(words[0], options, say=say))
