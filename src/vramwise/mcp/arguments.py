"""Arguments that tools share, as agents see them, and their conversion into Options that read no files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from vramwise.errors import ConfigError, VramwiseError
from vramwise.facts.gpus import find_gpus
from vramwise.opening.options import Options
from vramwise.opening.sources import NotOurs
from vramwise.opening.stacks import said_release
from vramwise.opening.subject import Subject
from vramwise.render.json_text import json_text
from vramwise.trainers.registry import TRAINER_NAMES, trainer_named

Config = Annotated[
    str,
    Field(
        description=(
            "The text of the training config, YAML or JSON (not a path). Files it names are not read: inline a "
            "DeepSpeed config, and name the model by its hub id."
        )
    ),
]
Gpu = Annotated[
    str,
    Field(
        description=(
            "The card, e.g. rtx-4090, a100-80gb, h100, or a memory size such as 24GB; see list_gpus. Default: this "
            "machine's GPU. Without a card, nothing is predicted."
        )
    ),
]
Gpus = Annotated[int, Field(description="Number of cards.", ge=1, le=4096)]
Versions = Annotated[
    list[str],
    Field(description="Package versions used in the run, each like torch==2.13.0. Default: the installed versions."),
]
TrainerName = Annotated[
    str, Field(description="The trainer of the config, if it is not recognised: " + ", ".join(TRAINER_NAMES))
]
# One line that ends like a file name: no config is that short.
_PATH = re.compile(r"[^\n:{]+\.(ya?ml|json|py|ipynb)", re.IGNORECASE)


class RefusedError(Exception):
    """A user error, worded for the agent. Raised where tools run, in a process without the SDK."""


def next_call(error: VramwiseError, then: str) -> RefusedError:
    """Return a user error worded for agents: what is wrong, and the call to make next."""
    said = str(error)
    return RefusedError(f"{said}{'' if said.endswith(('.', '?')) else '.'} Next: {then}.")


def plain(document: Any) -> Any:
    """Return the document as in `--format json`: values that JSON lacks and lone surrogates become text."""
    return json.loads(json_text(document))


def known_model(subject: Subject) -> None:
    """Raise RefusedError if the config's model is unknown: nothing can be predicted for it."""
    if subject.model is None:
        then = "call list_models, and name a known model of the same shape"
        raise next_call(VramwiseError(subject.model_missing), then)


def run_tool(tool: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Return the tool's result. Raises RefusedError, with the next call where possible, for a user error."""
    config = arguments.get("config")
    if isinstance(config, str) and _PATH.fullmatch(config.strip()):
        said = VramwiseError(f"config is the path {config.strip()}, not the text of a config")
        raise next_call(said, "read that file and pass its text as config")
    try:
        return tool(**arguments)
    except NotOurs as error:
        names = ", ".join(TRAINER_NAMES)
        raise next_call(error, f"call again with trainer set to one of {names}, if it is one") from error
    except ConfigError as error:
        raise next_call(error, "fix the text at that position and call again") from error
    except VramwiseError as error:
        raise RefusedError(str(error)) from error


def options_of(gpu: str, gpus: int, versions: list[str], trainer: str) -> Options:
    """Return the options for the named machine. Raises RefusedError with the next call if a name is unknown."""
    if gpu:
        _known(lambda: find_gpus(gpu), "call list_gpus with a part of the name, or give a size such as 24GB")
    if trainer:
        _known(lambda: trainer_named(trainer), "leave trainer empty to have the config recognised")
    for words in versions:
        _known(lambda words=words: said_release(words), "write versions like torch==2.13.0")  # type: ignore[misc]
    return Options(
        gpu=gpu or None,
        gpus=gpus if gpu and gpus > 1 else None,
        versions=tuple(versions),
        trainer=trainer or None,
        text_alone=True,
        predict=True,
    )


def _known(ask: Callable[[], object], then: str) -> None:
    try:
        ask()
    except VramwiseError as error:
        raise next_call(error, then) from error
