"""Opens scripts, notebooks, launch lines and shell scripts as documents. Nothing in them is executed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from vramwise.documents.document import parse_value
from vramwise.errors import ConfigError, VramwiseError
from vramwise.facts.gpus import find_gpus
from vramwise.opening.files import read_config_bytes
from vramwise.opening.options import Options
from vramwise.opening.sidecar import read_module, read_side_files
from vramwise.trainers.launch import Launch, read_launch, read_shell
from vramwise.trainers.scripts.reading import NoTraining as NoTraining
from vramwise.trainers.scripts.reading import Reading, read_script
from vramwise.types import Document


def read_training(path: str, data: bytes, options: Options) -> Document:
    """Read one training of a script or notebook as a document."""
    count, card = (None, None) if options.gpu is None else find_gpus(options.gpu)

    @cache
    def load(name: str) -> Mapping[str, Any] | None:
        return None if options.text_alone else read_side_files([name], path)[name]

    @cache
    def load_module(name: str) -> tuple[bytes, bool] | None:
        return None if options.text_alone else read_module(name, path)

    return read_script(
        path,
        data,
        Reading(
            said=said_values(options.settings),
            args=options.script_args,
            call=options.call,
            bf16=None if card is None else card.bf16,
            capability=None if card is None else card.capability,
            gpus=options.gpus or count or 1,
            load=load,
            load_module=load_module,
        ),
    )


def said_values(settings: Sequence[str]) -> dict[str, Any]:
    """Parse `name=value` words; values are read as YAML. Raises VramwiseError for a word without a name or `=`."""
    found: dict[str, Any] = {}
    for words in settings:
        name, equals, value = words.partition("=")
        if not equals or not name.strip():
            raise VramwiseError(f"--set {words}: expected name=value")
        found[name.strip()] = parse_value(value)
    return found


def launched(line: str, options: Options, folder: str = "") -> tuple[str | dict[str, Any], Options]:
    """Return the source that a launch line starts, and the options with what the line adds.

    `folder`: where the files that the line names are.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ConfigError(f"this command cannot be read: {str(error).lower()}") from None
    return _source(read_launch(words), options, folder)


def launched_by(path: str, options: Options) -> tuple[str | dict[str, Any], Options]:
    """Return the source that a shell script starts, and the options with what the script adds."""
    text = read_config_bytes(path).decode("utf-8", "replace")
    try:
        return _source(read_shell(text), options, str(Path(path).parent))
    except ConfigError as error:
        error.path = error.path or path
        raise


# The variable by which `accelerate launch` passes its option of the same name on.
_EARLY = "FSDP_CPU_RAM_EFFICIENT_LOADING"


def _source(launch: Launch, options: Options, folder: str) -> tuple[str | dict[str, Any], Options]:
    accelerate = dict(launch.accelerate)
    if "config_file" in accelerate:
        accelerate["config_file"] = _beside(accelerate["config_file"], folder)
    early = launch.environment.get(_EARLY)
    if early is not None:
        accelerate.setdefault(_EARLY.lower(), str(early.lower() in ("1", "true", "yes", "on")).lower())
    options = _with_idle_cards(options, launch.gpus)
    gpus = options.gpus or launch.gpus
    if gpus is None and options.gpu is None and not options.text_alone:
        gpus = _processes(accelerate.get("config_file"))
    options = replace(options, gpus=gpus, accelerate=tuple(accelerate.items()))
    if launch.script is not None:
        words = shlex.join(launch.arguments)
        args = " ".join(filter(None, (words, options.script_args)))
        return _beside(launch.script, folder), replace(options, script_args=args)
    changes = tuple(f"{key}={_word(value)}" for key, value in launch.options.items() if key != "config")
    if launch.trainer:
        options = replace(options, trainer=options.trainer or launch.trainer)
    if launch.trainer and launch.config is None:
        return {key: parse_value(_word(value)) for key, value in launch.options.items()}, options
    if launch.config is None:
        raise ConfigError(f"no config for {launch.program} in this command")
    return _beside(launch.config, folder), replace(options, settings=(*changes, *options.settings))


def _with_idle_cards(options: Options, processes: int | None) -> Options:
    """Return the options without a number of cards if the launch starts fewer processes: the others stay idle.

    They may serve something else, such as an engine that generates.
    """
    if processes is None or options.gpus is not None or options.gpu is None:
        return options
    count, card = find_gpus(options.gpu)
    return replace(options, gpu=card.name) if count is not None and processes < count else options


def _processes(name: str | None) -> int | None:
    """Return how many processes accelerate's file starts; None if it does not say or cannot be read."""
    content = None if name is None else read_side_files([name], ".")[name]
    count = None if content is None else content.get("num_processes")
    return count if type(count) is int and count > 0 else None


def _beside(name: str, folder: str) -> str:
    """Return the path of a file as the command names it if it exists, else its path beside the shell script."""
    return name if Path(name).exists() or not folder else str(Path(folder) / name)


def _word(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value
