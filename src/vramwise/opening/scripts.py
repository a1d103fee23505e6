"""Opens scripts, notebooks, launch lines and shell scripts as documents. Nothing in them is executed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from vramwise.documents.document import parse_value
from vramwise.documents.edit import as_json
from vramwise.documents.python.flags import guessed, words_of
from vramwise.errors import ConfigError, VramwiseError
from vramwise.facts.gpus import find_gpus
from vramwise.opening.files import read_config_bytes
from vramwise.opening.options import Options, Text
from vramwise.opening.sidecar import read_module, read_side_files, texts_of
from vramwise.opening.sources import Given, NotOurs, Source, other_tool, read_document
from vramwise.opening.stacks import make_stack
from vramwise.trainers.arguments.parsing import converted
from vramwise.trainers.arguments.trainer import ArgumentsTrainer
from vramwise.trainers.arguments.vocabulary import Vocabulary, kinds_of
from vramwise.trainers.launch import EARLY, Launch, read_launch, read_shell
from vramwise.trainers.other_tools import LORA_RANKS, PLAIN, plain_values
from vramwise.trainers.recognise import Foreign, recognise
from vramwise.trainers.registry import trainer_named
from vramwise.trainers.scripts.reading import NoTraining as NoTraining
from vramwise.trainers.scripts.reading import Reading, may_train, read_script
from vramwise.types import Document, Stack


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


def launched(line: str, options: Options, folder: str = "") -> tuple[Source, Options]:
    """Return the source that a launch line starts, and the options with what the line adds.

    `folder`: where the files that the line names are.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ConfigError(f"this command cannot be read: {str(error).lower()}") from None
    return _source(read_launch(words), options, folder, "this command")


def launched_by(path: str, options: Options) -> tuple[Source, Options]:
    """Return the source that a shell script starts, and the options with what the script adds."""
    text = read_config_bytes(path).decode("utf-8", "replace")
    folder = str(Path(path).parent)

    def load(name: str) -> str | None:
        found = None if options.text_alone else _place(name, folder)
        try:
            return None if found is None else read_config_bytes(found).decode("utf-8", "replace")
        except ConfigError:
            return None

    try:
        listed = read_shell(text, Path(path).name, words_of(options.script_args), load)
        chosen, notes, call = _chosen(listed, options.call, folder)
        options = replace(options, call=call, script_args="", notes=(*options.notes, *notes), home=path)
        return _source(chosen, options, folder, Path(path).name)
    except ConfigError as error:
        error.path = error.path or path
        raise


def _chosen(listed: list[Launch], call: int | None, folder: str) -> tuple[Launch, list[str], int | None]:
    """Return the command that trains, what to say about it, and which call of its script is meant.

    Without `call` it is the first of those that train for certain, or else of those that look like a training.
    """
    ranks = [_rank(one, folder) for one in listed]
    trainings = [one for one, rank in zip(listed, ranks, strict=True) if rank == min(ranks)]
    only = bool(min(ranks)) or len(trainings) == 1
    if not only and call is not None and not 1 <= call <= len(trainings):
        raise VramwiseError(f"--call {call}: this script has {len(trainings)} commands that train")
    place = 0 if only or call is None else call - 1
    chosen = trainings[place]
    notes = list(chosen.notes)
    if len(listed) > 1:
        others = [f"{at + 1}: line {one.line}" for at, one in enumerate(trainings) if at != place][:_MOST_NAMED]
        rest = "" if only else f"; {len(trainings)} commands train, and --call N reads another ({', '.join(others)})"
        notes.insert(0, f"the command in line {chosen.line} ({chosen.script or chosen.program}){rest}")
    return chosen, notes, call if only else None


def _rank(launch: Launch, folder: str) -> int:
    """Return 0 for a command that trains, 1 for one that looks like it, 2 for others, 3 if it only evaluates."""
    if not launch.trains:
        return 3
    if launch.script is None or launch.trainer or launch.tool:
        return 0
    if launch.script in launch.files:
        return 0 if may_train(launch.files[launch.script].encode()) else 2
    found = _place(launch.script, folder, launch.folder)
    looks = bool(launch.gpus or launch.accelerate) or plain_values(launch.options) != {}
    if found is not None and may_train(read_config_bytes(found)):
        return 0
    return 0 if looks and found is not None and plain_values(launch.options) else 1 if looks else 2


_MOST_NAMED = 5
# A file may be named relative to the root of its repository, so many folders above the shell script.
_MOST_PARENTS = 4
# A value that only the shell knows, and the keys for which it still says something.
_UNKNOWN = re.compile(r"\$(?:\w+|\{\w+\}|\(.*\))", re.ASCII | re.DOTALL)
_NAMING = re.compile(r".*(?:model|path|dir|file|name|data|config|deepspeed)", re.ASCII)


def _source(launch: Launch, options: Options, folder: str, where: str) -> tuple[Source, Options]:
    """Return what a command starts. `where`: the name of its shell script, or what a launch line is called."""
    source, options = _started(launch, options, folder, where)
    if isinstance(source, Mapping):
        source = Given(source, where if where == _LINE else f"{options.home}:{launch.line}")
    return source, options


def _started(launch: Launch, options: Options, folder: str, where: str) -> tuple[Source, Options]:
    text_alone = options.text_alone
    accelerate = dict(launch.accelerate)
    config_file = accelerate.get("config_file")
    if config_file is not None and config_file in launch.files:
        accelerate["text"] = launch.files[config_file]
    elif config_file is not None and not text_alone:
        accelerate["config_file"] = _place(config_file, folder, launch.folder) or config_file
    early = launch.environment.get(EARLY)
    if early is not None:
        accelerate.setdefault(EARLY.lower(), str(early.lower() in ("1", "true", "yes", "on")).lower())
    if launch.distributed and not launch.kind:
        options = replace(options, launcher=options.launcher or "module")
    elif launch.forced:
        options = replace(options, launcher=options.launcher or "torchrun")
    options = _with_idle_cards(options, launch.gpus)
    gpus = options.gpus or launch.gpus
    if gpus is None and options.gpu is None and not text_alone:
        gpus = _processes(accelerate) or launch.visible
    options = replace(options, gpus=gpus, accelerate=tuple(accelerate.items()))
    arguments, dropped = _known(launch.arguments)
    if dropped:
        said = f"{', '.join(dropped)}: set outside {where}, so the default is assumed"
        options = replace(options, notes=(*options.notes, said))
    if not text_alone:
        arguments = [_side(word, folder, launch.folder) for word in arguments]
    launch = replace(launch, arguments=tuple(arguments))
    if launch.tool is not None:
        given = {} if launch.tool.defaults is None else _typed(launch.options, PLAIN)
        raise other_tool(launch.tool, plain_values(given, launch.tool.defaults), options)
    if launch.script is not None:
        return _of_script(launch, options, folder, where, dropped)
    if launch.trainer:
        options = replace(options, trainer=options.trainer or launch.trainer)
    if launch.config is None:
        if not launch.trainer:
            raise ConfigError(f"no config for {launch.program} in this command")
        return _typed(launch.options, options.trainer or launch.trainer), options
    return _of_config(launch, options, folder, where)


def _of_config(launch: Launch, options: Options, folder: str, where: str) -> tuple[Source, Options]:
    """Return the YAML file that a command names, with the options that change it."""
    assert launch.config is not None
    given = {key: value for key, value in launch.options.items() if key != "config"}
    name = options.trainer or launch.trainer or launch.program
    changes = tuple(f"{key}={as_json(value)}" for key, value in _typed(given, name).items())
    options = replace(options, settings=(*changes, *options.settings))
    if launch.config in launch.files:
        return Text(launch.files[launch.config]), options
    found = None if options.text_alone else _place(launch.config, folder, launch.folder)
    if found is None and launch.line and where != _LINE:
        raise _absent(launch.config, launch, where)
    return found or launch.config, options


def _of_script(
    launch: Launch, options: Options, folder: str, where: str, dropped: Sequence[str]
) -> tuple[Source, Options]:
    """Return the script that a command starts, or what its options describe if it is not here or trains elsewhere."""
    assert launch.script is not None
    script = launch.files.get(launch.script)
    found = None if options.text_alone else _place(launch.script, folder, launch.folder)
    source: Source = Text(script) if script is not None else found or launch.script
    said = replace(options, script_args=f"{shlex.join(launch.arguments)} {options.script_args}".strip())
    is_there = script is not None or found is not None
    if is_there and launch.is_own and _is_followed(source, said):
        return source, said
    reason = f"{launch.script} ({'calls no trainer that is known' if is_there else 'not here'}"
    if launch.trainer:
        note = f"{launch.script} is read as {launch.known}: its options decide"
        options = replace(options, trainer=options.trainer or launch.trainer, notes=(*options.notes, note))
        if launch.kind and (config := launch.options.get("config")) and isinstance(config, str):
            return _of_config(replace(launch, config=config), options, folder, where)
        return _typed(launch.options, launch.trainer), options
    named = next((word for word in launch.arguments if word.endswith((".yaml", ".yml", ".json"))), None)
    config = None if named is None or options.text_alone else _place(named, folder, launch.folder)
    if config is not None and not plain_values(launch.options) and _is_config(config):
        note = f"{reason}): {named}, which it is given, is read as the config of the training"
        return config, replace(options, notes=(*options.notes, note))
    given = _typed(launch.options, PLAIN) if any(word.startswith("--") for word in launch.arguments) else {}
    if any(word.split()[0].lstrip("-") in LORA_RANKS for word in dropped):  # whose value only the shell knows
        given.setdefault("use_lora", True)
    plain = plain_values(given)
    name = Path(launch.script).name.lower()
    meant = {"use_lora": True} if "lora" in name and not plain.get("use_peft") else {}
    meant |= {"use_qlora": True} if "qlora" in name and not plain.keys() & {"load_in_4bit", "load_in_8bit"} else {}
    if meant:
        reason = f"{reason}, trains {'QLoRA' if 'qlora' in name else 'LoRA'} by its name"
        plain = plain_values({**given, **meant})
    if plain:
        trainer = trainer_named(options.trainer or launch.plain_trainer)
        if launch.plain_trainer != PLAIN and isinstance(trainer, ArgumentsTrainer):
            known = trainer.vocabulary(None, make_stack(trainer.package, trainer.releases(), look_around=False))
            plain = {key: value for key, value in plain.items() if key in known}
        note = f"{reason}): its options are read as those of {trainer.title}, and the rest has its defaults"
        options = replace(options, trainer=options.trainer or launch.plain_trainer, notes=(*options.notes, note))
        return plain, options
    if not is_there and where != _LINE:
        raise _absent(launch.script, launch, where)
    return source, said


def _is_followed(source: Source, options: Options) -> bool:
    """Return whether a script calls a trainer; anything else that is wrong with it is said when it is opened."""
    try:
        read_document(source, options)
    except NotOurs:
        return False
    except VramwiseError:
        pass
    return True


def _is_config(path: str) -> bool:
    """Return whether a file is the config of a known trainer."""
    try:
        return not isinstance(recognise(read_document(path, Options()).values), Foreign)
    except VramwiseError:
        return False


# How errors name a launch line, which has no path.
_LINE = "this command"


def _absent(name: str, launch: Launch, where: str) -> ConfigError:
    return ConfigError(f"{name}, which {where} starts in line {launch.line}, is not here", line=launch.line)


def _known(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return arguments without the options whose whole value only the shell knows, and those options."""
    kept: list[str] = []
    dropped: list[str] = []
    for word in words:
        last = kept[-1] if kept and kept[-1].startswith("--") and "=" not in kept[-1] else ""
        key, _, value = word.partition("=") if word.startswith("--") else (last, "", word)
        if key and _UNKNOWN.fullmatch(value) and not _NAMING.match(key):
            kept = kept[:-1] if last and not word.startswith("--") else kept
            dropped.append(f"{key} {value}")
        elif word.startswith("--") or last or not _UNKNOWN.fullmatch(word):
            kept.append(word)
    return kept, dropped


def _typed(given: Mapping[str, str | bool | list[str]], trainer: str) -> dict[str, Any]:
    """Return options as their fields hold them: what takes text stays text."""
    found = trainer_named(trainer)
    if not isinstance(found, ArgumentsTrainer):
        return {key: _value(value, None) for key, value in given.items()}
    stack = make_stack(found.package, found.releases(), look_around=False)
    words = found.vocabulary(None, stack)
    found_keys = sorted(words.keys())
    named = {_meant(key, found_keys, given): value for key, value in given.items()}
    return {key: _held(key, value, words, found, stack) for key, value in named.items()}


def _held(key: str, text: str | bool | list[str], words: Vocabulary, trainer: ArgumentsTrainer, stack: Stack) -> Any:
    """Return an option's value, by the newest release that takes it."""
    value = _value(text, words.type_of(key))
    if _takes(words, key, value):
        return value
    for version in reversed(list(trainer.releases())):
        older = trainer.vocabulary(None, stack.at(trainer.package, version))
        held = _value(text, older.type_of(key))
        if older.type_of(key) is not None and _takes(older, key, held):
            return held
    return value


def _takes(words: Vocabulary, key: str, value: Any) -> bool:
    misread = words.misread(key, value)
    return words.check(key, value) is None and (misread is None or not misread.grave)


def _meant(key: str, known: Sequence[str], given: Mapping[str, Any]) -> str:
    """Return the flag that a written one begins, as argparse takes it if there is only one."""
    begun = [one for one in known if one.startswith(key)]
    return begun[0] if len(begun) == 1 and begun[0] not in given else key


def _value(value: str | bool | list[str], written: str | None) -> Any:
    if isinstance(value, list):
        return [_value(one, None) for one in value]
    if isinstance(value, bool):
        return value
    if written is not None:
        try:
            found = converted(written, value)
            return [found] if "list" in (kinds := kinds_of(written)) and "str" not in kinds else found
        except ValueError:
            return value
    return guessed(value)


def _with_idle_cards(options: Options, processes: int | None) -> Options:
    """Return the options without a number of cards if the launch starts fewer processes: the others stay idle.

    They may serve something else, such as an engine that generates.
    """
    if processes is None or options.gpus is not None or options.gpu is None:
        return options
    count, card = find_gpus(options.gpu)
    return replace(options, gpu=card.name) if count is not None and processes < count else options


def _processes(accelerate: Mapping[str, str]) -> int | None:
    """Return how many processes accelerate's file starts; None if it does not say or cannot be read."""
    name = accelerate.get("config_file")
    content = read_side_files([name], ".", texts_of(accelerate))[name] if name is not None else None
    count = None if content is None else content.get("num_processes")
    return count if type(count) is int and count > 0 else None


def _place(name: str, folder: str, inside: str = "") -> str | None:
    """Return the path of a file that a command names; None if there is none.

    It is searched in the current folder, beside the shell script and in the folders above it, each time first in the
    folder that the script changes to.
    """
    if not name or "$" in name:
        return None
    parents = [Path(folder), *list(Path(folder).resolve().parents)[:_MOST_PARENTS]] if folder else []
    for base in (Path(), *parents):
        for path in dict.fromkeys((base / inside / name, base / name) if inside else (base / name,)):
            try:
                if path.is_file():
                    return str(path)
            except (OSError, ValueError):
                return None
    return None


def _side(word: str, folder: str, inside: str) -> str:
    """Return a word with the path of the config file that it names, `--key=file` included."""
    key, equals, name = word.partition("=") if word.startswith("--") else ("", "", word)
    if not name.endswith((".json", ".yaml", ".yml")):
        return word
    return f"{key}{equals}{_place(name, folder, inside) or name}"
