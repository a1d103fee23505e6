"""Reads a script or notebook as a Document: the keys of one of its trainings, with the place of every value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from vramwise.documents.python.commands import functions_of_subcommands, options_of
from vramwise.documents.python.evaluate import Evaluator
from vramwise.documents.python.flags import CLASS_PARSERS, flags_of, parsed, unknown_flags, words_of
from vramwise.documents.python.functions import Functions
from vramwise.documents.python.modules import Modules
from vramwise.documents.python.notebook import whole
from vramwise.documents.python.reached import reached
from vramwise.documents.python.scopes import index
from vramwise.documents.python.source import Source, read_source
from vramwise.errors import ConfigError, VramwiseError
from vramwise.limits.meter import Meter, metered
from vramwise.trainers.arguments import Vocabulary, training_arguments
from vramwise.trainers.scripts import calls
from vramwise.trainers.scripts.collected import Found
from vramwise.trainers.scripts.data import loaded_data, split_seed
from vramwise.trainers.scripts.loops import Loop, is_loop, loop_of
from vramwise.trainers.scripts.plugins import from_accelerator, from_file
from vramwise.trainers.scripts.training import Training, trainings
from vramwise.trainers.scripts.variables import own_variables
from vramwise.types import Document, Script, Stack, Unsaid, version_parts
from vramwise.types.actions import action

# A script passes its data to the trainer as an object, so keys that name it do not apply.
_ITS_OWN = "the script's own data"
# All arguments of TRL's trainers, models and adapters together are half as many.
_MOST_SETTINGS = 1_000
# The trainer whose configs have a key for environment variables.
_IN_FILE = "trl"
# A file without one of these words calls no known trainer.
_TRAINS = re.compile(rb"\b(?:SFT|DPO|KTO|ORPO|CPO|Reward|GRPO|RLOO|Seq2Seq|Unsloth)?Trainer\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How to read a script. `said`: --set; `args`: its command line; `call`: which of its trainings, from 1.

    `bf16`, `capability` and `gpus` describe the target card. `load` returns files beside the script; `load_module`
    the source of a module beside it and whether that is a package's own.
    """

    said: Mapping[str, Any] = field(default_factory=dict)
    args: str = ""
    call: int | None = None
    bf16: bool | None = None
    capability: tuple[int, int] | None = None
    gpus: int = 1
    load: Callable[[str], Mapping[str, Any] | None] = lambda _: None
    load_module: Callable[[str], tuple[bytes, bool] | None] = lambda _: None
    # What a notebook has around the sources of its cells, if the data is only these.
    around: tuple[str, ...] = ()
    # Shared by all readings of a command: a search reads each of its edits.
    meter: Meter = field(default_factory=Meter)


@cache
def plain_arguments() -> Vocabulary:
    """Return the keys of TrainingArguments; trainers built on it have further arguments."""
    return training_arguments(Stack(releases={}))


class NoTraining(ConfigError):  # noqa: N818 (it reads as what happened)
    """Raised for source that calls no known trainer. `imports`: the modules that it imports."""

    imports: tuple[str, ...] = ()


def may_train(data: bytes) -> bool:
    """Return whether a source can contain a training, judging by its words alone."""
    return _TRAINS.search(data) is not None


def read_script(path: str, data: bytes, reading: Reading) -> Document:
    """Read one training of a script or notebook. Raises NoTraining, or a ConfigError with its place."""
    with metered(reading.meter, "source"):
        return _read(path, data, reading)


def _read(path: str, data: bytes, reading: Reading) -> Document:
    source = read_source(data)
    found = index(source.tree, Modules(reading.load_module))
    flags = flags_of(found)
    others = options_of(found) if reading.args else {}
    lists = any(found.named(one) for one in CLASS_PARSERS)
    given = parsed(reading.args, {**flags, **others}, lists=lists)
    functions = Functions(
        flags=flags,
        given=given,
        words=words_of(reading.args),
        bf16=reading.bf16,
        capability=reading.capability,
        gpus=reading.gpus,
        load=reading.load,
        defaults=calls.ATTRIBUTE_DEFAULTS,
        nothing_without=calls.NOTHING_WITHOUT,
    )
    evaluator = Evaluator(found, functions, reading.said, given)
    listed = trainings(found, evaluator)
    loop = None if listed else loop_of(found, evaluator)
    if loop is not None:
        listed = [loop]
    elif not listed:
        remedy = action("predict a loop" if is_loop(found) else "name the call")
        nothing = NoTraining(
            f"this source calls no known trainer: none of {', '.join(calls.TRAINERS)}, and no class that extends one; "
            f"{remedy}"
        )
        nothing.imports = tuple(found.module.imports.values())
        raise nothing
    chosen = _chosen(listed, reading.call, evaluator)
    kind = Training if loop is None else Loop
    training = kind(found=listed[chosen], evaluator=evaluator, source=source, said=reading.said, load=reading.load)
    training.read()
    if loop is not None and "model_name_or_path" not in training.values:
        line = loop.call.lineno
        raise NoTraining(
            f"its model is set at run time (line {line}): name it with --model; {action('predict a loop')}"
        )
    for flag, near, line in unknown_flags(reading.args, flags, found) if not others else ():
        training.facts[f"{calls.UNKNOWN_FLAG}{flag}{f': did you mean {near}?' if near else ''}"] = line
    if len(training.values) > _MOST_SETTINGS:
        raise ConfigError(f"a training with {len(training.values):,} settings: the limit is {_MOST_SETTINGS:,}")
    if reading.gpus > 1:
        _shard(training, reading)
    for key, value in reading.said.items():
        training.values.setdefault(key, value)
    training.values |= {key: value for key, value in loaded_data(evaluator).items() if key not in training.values}
    variables = own_variables(source.tree)
    if variables and listed[chosen].trainer == _IN_FILE and not training.unsloth:
        training.values["env"] = variables
    if "datasets" not in training.values:
        training.values.setdefault("dataset_name", _ITS_OWN)
    for number in source.unread:
        training.assume(f"cell {number}", "it is no Python here, and is left out")
    return _document(path, source, training, listed, chosen, reading)


def _shard(training: Training, reading: Reading) -> None:
    """Set sharding from the options of accelerate, unless the training's own arguments set it."""
    found, unknown = from_accelerator(training.evaluator)
    named = reading.said.get("accelerate_config")
    if isinstance(named, str) and not training.found.kind:  # trainers with a kind use the key itself
        found = found or from_file(reading.load(named), named)
    if training.values.keys() & {"fsdp", "deepspeed"}:
        return
    training.unsaid += [Unsaid(key=key, name=one.name, line=one.line, why=one.why) for key, one in unknown]
    training.values.update(found)


def _chosen(listed: list[Found], wanted: int | None, evaluator: Evaluator) -> int:
    """Return the training that is meant: the requested one, else the last that runs.

    Earlier ones usually prepare it.
    """
    if wanted is None:
        others = _of_other_subcommands(evaluator)
        run = [
            place
            for place, one in enumerate(listed)
            if evaluator.holds(one.site) is not False and getattr(one.site.scope.node, "name", "") not in others
        ]
        can_run = reached(evaluator.found)
        run = [place for place in run if id(listed[place].site.scope) in can_run] or run
        return run[-1] if run else len(listed) - 1
    if not 1 <= wanted <= len(listed):
        raise VramwiseError(f"--call {wanted}: this source has {len(listed)} trainer calls")
    return wanted - 1


def _of_other_subcommands(evaluator: Evaluator) -> set[str]:
    """Return the functions that run under another subcommand than the one in --args."""
    functions = functions_of_subcommands(evaluator.found)
    given = {functions[one] for one in evaluator.given.values() if isinstance(one, str) and one in functions}
    return set(functions.values()) - given if given else set()


def _document(
    path: str, source: Source, training: Training, listed: list[Found], chosen: int, reading: Reading
) -> Document:
    # These outlive the reading, and must not keep its syntax tree: a search holds many documents.
    written, homes, unsloth, known = training.written, training.homes, training.unsloth, set(training.values)
    lacking = {one.key for one in training.unsaid}
    old = not unsloth and _is_old(source)
    flags = training.words
    raw, around = source.raw, reading.around

    def home_of(key: str) -> tuple[str, str] | None:
        if key in written:
            return written[key]
        elsewhere = False
        listed = {**calls.ARGUMENTS, **calls.UNSLOTH_ARGUMENTS} if unsloth else calls.ARGUMENTS
        for role in ("lora", "quantization", "model"):
            for argument, other in listed[role].items():
                elsewhere = elsewhere or other == key
                if other == key and role in homes:
                    return role, "torch_dtype" if argument == "dtype" and old else argument
        home = homes.get("args")
        if home is None or elsewhere or key in calls.NO_ARGUMENTS:
            return None
        return None if home.name in calls.PLAIN_ARGUMENTS and key not in plain_arguments() else ("args", key)

    def reread(changed: bytes, around: tuple[str, ...]) -> Document:
        return read_script(path, changed, replace(reading, call=chosen + 1, around=around))

    def flag_of(key: str) -> str:
        own = flags.get(key, "")
        return own or (f"--{key}" if "" in flags and key in plain_arguments() and key not in known else "")

    def given(words: str) -> Document:
        return read_script(
            path, raw.encode(source.encoding), replace(reading, args=f"{reading.args} {words}", around=around)
        )

    one = training.found
    script = Script(
        trainer=calls.UNSLOTH if training.unsloth and one.kind else one.trainer,
        kind=one.kind,
        line=one.call.lineno,
        trainings=tuple(f"{other.name} (line {other.call.lineno})" for other in listed),
        chosen=chosen + 1,
        reread=reread,
        homes=training.homes,
        home_of=home_of,
        flag_of=flag_of,
        given=given,
        unsaid=tuple({(open_key.key, open_key.name): open_key for open_key in reversed(training.unsaid)}.values())[
            ::-1
        ],
        leaves_open=lambda key: key not in known and not lacking.isdisjoint(_with_groups(key)),
        assumed=tuple(dict.fromkeys(training.assumed)),
        versions=source.versions,
        variables=own_variables(source.tree),
        cells=tuple((cell.first_line, cell.number) for cell in source.cells),
        raw=raw,
        around=around,
        file_text=lambda: whole(raw, around) if around else raw,
        encoding=source.encoding,
        split_seed=split_seed(training.evaluator),
        facts={**training.facts, **({"unsloth": one.call.lineno} if training.unsloth else {})},
    )
    return Document(path=path, text=source.text, values=training.values, spans=training.spans, script=script)


def _with_groups(key: str) -> tuple[str, ...]:
    """Return a key and the groups of settings that may set it."""
    return (key, *next((kinds for keys, kinds in calls.OPEN_KINDS if key in keys), calls.OPEN_ARGUMENTS))


def _is_old(source: Source) -> bool:
    """Return whether the script pins a transformers before 4.56, where `dtype` is `torch_dtype`."""
    pinned = source.versions.get("transformers")
    return pinned is not None and version_parts(pinned) < (4, 56)
