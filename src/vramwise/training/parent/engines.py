"""Chooses the engine: the embedded one, or the file's own trainer through its own command."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vramwise.errors import VramwiseError
from vramwise.trainers.base import Trainer
from vramwise.trainers.registry import EMBEDDED, EMBEDDED_TRAINS
from vramwise.training.parent.engine_script import SCRIPTS, script_attempt
from vramwise.training.parent.extras import COMMANDS, find_command, install_lines
from vramwise.training.parent.hosted_engines import axolotl_attempt, llamafactory_attempt, trl_attempt
from vramwise.training.parent.launch import worker_command
from vramwise.training.plan import Decision, TrainPlan

ASKED = "asked for"
# Functions that return the command of one attempt.
ATTEMPTS: Mapping[str, Callable[[TrainPlan, str, Mapping[str, str]], list[str]]] = {
    EMBEDDED: worker_command,
    "axolotl": axolotl_attempt,
    "trl": trl_attempt,
    "llamafactory": llamafactory_attempt,
    SCRIPTS: script_attempt,
}
# The engines that can be requested; a script trains itself.
ENGINES = tuple(name for name in ATTEMPTS if name != SCRIPTS)


def choose_engine(path: str, owner: Trainer, asked: str | None, *, random_weights: bool) -> Decision:
    """Return the requested engine, else the file's own trainer if it is installed, else the embedded one.

    Raises VramwiseError for an unknown engine, one that does not train the file, or if the trainer has to be installed.
    """
    if asked is not None:
        _refuse_strangers(path, owner, asked)
        return _engine(asked, ASKED)
    embedded = owner.name in EMBEDDED_TRAINS
    if random_weights and embedded:
        return _engine(EMBEDDED, "--random-weights is the embedded engine's alone")
    if owner.name in COMMANDS and find_command(owner.name) is not None:
        return _engine(owner.name, "the file is for it, and it is installed")
    if not embedded:
        raise VramwiseError(f"{path} is a file of {owner.title}, which {_missing(owner)}")
    if owner.name in COMMANDS:
        return _engine(EMBEDDED, f"{owner.title}, which the file is for, is not installed here")
    return _engine(EMBEDDED, f"the file is for {owner.title}, which has no command of its own")


def _missing(owner: Trainer) -> str:
    if owner.name not in COMMANDS:
        return "vramwise train cannot start: start its training with its own command"
    return f"is not installed here: {install_lines([owner.name])}"


def _engine(name: str, why: str) -> Decision:
    return Decision(name="engine", value=name, why=why)


def _refuse_strangers(path: str, owner: Trainer, asked: str) -> None:
    if asked not in ENGINES:
        raise VramwiseError(f"engine '{asked}' is none of {', '.join(ENGINES)}")
    if asked != owner.name and (asked != EMBEDDED or owner.name not in EMBEDDED_TRAINS):
        other = f"use --engine {owner.name}" if owner.name in ENGINES else "leave out --engine"
        raise VramwiseError(f"{path} is a file of {owner.title}, which --engine {asked} does not read: {other}")
