"""Rules for files read as TrainingArguments: arguments that are unknown, misread or refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.arguments.parsing import NO
from vramwise.trainers.arguments.refusals import Held, argument_refusals
from vramwise.trainers.arguments.trainer import trainer_of
from vramwise.trainers.arguments.unknown_keys import StrangeKey
from vramwise.trainers.arguments.vocabulary import RENAMED
from vramwise.types import Fix, RunSpec, Severity, join_key
from vramwise.units import whole_number

_BASE = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"
_SIZES = (
    *("micro_batch_size", "eval_batch_size", "gradient_accumulation_steps", "sequence_len", "lora_r"),
    *("completion_len", "generation_rows"),
)


@rule(
    id="size-below-one",
    topic="batch",
    bad=f"{_BASE}per_device_train_batch_size: 0\n",
    good=f"{_BASE}per_device_train_batch_size: 1\n",
    beyond_trainer="Parsers accept any number; zero or less stops the run later, or trains on nothing.",
)
def size_below_one(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A size or count is zero or negative.

    Batches, lengths, ranks and the accumulation must be at least 1. The dataclasses accept any number. A batch of 0
    stops torch's data loader after the model is loaded, a rank of 0 stops PEFT, and a length of 0 or less leaves
    nothing of a sample or cuts off its end.
    """
    for field in _SIZES:
        key = run.keys.get(field)
        value = run.config.get(key) if key is not None and run.value(field) is not None else None
        if isinstance(value, int | float) and value < 1:
            yield Hit(f"{key} is {value}: it must be at least 1", key)


@rule(
    id="argument-misread",
    also=(Severity.WARNING,),
    topic="config",
    bad=f'{_BASE}packing: "false"\n',
    good=f"{_BASE}packing: false\n",
    beyond_trainer="Parsers accept values of any type; errors show up where the values are used, or never.",
)
def argument_misread(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A value of the wrong type that the parser does not reject.

    Dataclasses do not check types. A list instead of a number, an unknown strategy or a quoted number (which
    LLaMA-Factory does not convert) passes the parser, and the run stops where the value is used. This is an error if
    the key affects memory, and a warning otherwise. A switch accepts anything: whatever Python counts as true is on.
    `packing: "false"` is text and switches packing on in LLaMA-Factory, while TRL converts it.

    Predictions ignore such values; use one of the right type.
    """
    trainer = trainer_of(run)
    if trainer is None:
        return
    for found in trainer.vocabulary_of(run).misreadings(run.config.document.values):
        switch = "counts as" in found.sentence
        other = "" if switch else trainer.taken_by(run.config.document, run.target.stack, found.key)
        taken = f" ({other} takes it)" if other else ""
        ends = "" if switch else f": the parser accepts it, and the run stops where it is used{taken}"
        yield Hit(
            f"{found.sentence}{ends}",
            join_key((found.key,)),
            _unquote(run, found.key),
            severity=None if found.grave else Severity.WARNING,
            still_runs=switch,
        )


def _unquote(run: RunSpec, key: str) -> Fix | None:
    value = run.config.document.values[key]
    if not isinstance(value, str):
        return None
    if whole_number(value.strip().removeprefix("-")) is not None:
        return unsafe("Remove the quotes", set_key(key, int(value)))
    return unsafe("Remove the quotes", set_key(key, False)) if value.lower() in NO else None


_STRATEGIES = ("eval_strategy", "save_strategy", "logging_strategy")


@rule(
    id="argument-type",
    unusable=True,
    topic="config",
    bad="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\neval_strategy: no\n",
    good="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\neval_strategy: 'no'\n",
)
def argument_type(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A value of a type that its argument does not accept.

    Dataclasses do not check values, but their parsers, enumerations and first checks do: an unknown strategy, text
    that is not a number, a missing value in a comparison. The run stops before anything is loaded. Values that still
    work are not reported: quoted numbers that the parser converts, a single name instead of a list.

    In YAML 1.1 an unquoted `no` is false, so `eval_strategy: no` is rejected; write `eval_strategy: "no"`.
    """
    trainer = trainer_of(run)
    document, stack = run.config.document, run.target.stack
    errors = trainer.vocabulary_of(run).type_errors(document.values) if trainer is not None else ()
    for key, sentence in errors:
        other = trainer.taken_by(document, stack, key) if trainer is not None else ""
        taken = f" ({other} takes it)" if other else ""
        yield Hit(f"{sentence}: the run stops{taken}", join_key((key,)), _quote_no(run, key))


def _quote_no(run: RunSpec, key: str) -> Fix | None:
    if key in _STRATEGIES and run.config.document.values[key] is False:
        return safe('Quote "no"', set_key(key, "no"))
    return None


_BASE = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\n"


_PLAIN = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\n"


@rule(
    id="refused-by-transformers",
    topic="config",
    bad=f"{_PLAIN}fp16: true\nbf16: true\n",
    good=f"{_PLAIN}bf16: true\n",
)
def refused_by_transformers(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Arguments that transformers' TrainingArguments rejects.

    TRL's configs and LLaMA-Factory's training arguments extend TrainingArguments and run its checks before anything is
    loaded: two precisions at once, `load_best_model_at_end` without an evaluation at every save, fractions of steps,
    unknown `fsdp` options. Each finding says what is expected.
    """
    trainer = trainer_of(run)
    if trainer is None:
        return
    for refused in argument_refusals(Held(run, trainer.vocabulary_of(run))):
        yield replace(refused, message=f"{refused.message}: transformers rejects the arguments")


@rule(
    id="unknown-argument",
    also=(Severity.WARNING,),
    topic="config",
    bad="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nuse_peft: true\nlora_drpout: 0.1\n",
    good="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nuse_peft: true\nlora_dropout: 0.1\n",
)
def unknown_argument(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A key that the trainer does not have.

    Files for TRL, LLaMA-Factory and transformers' Trainer are read into dataclasses. A key that none of them has is
    either misspelt, so the intended setting has no effect, or belongs to another version. LLaMA-Factory stops. TRL's
    command treats it as an option of `accelerate launch`, which stops with `unrecognized arguments`. A script started
    as a module drops it without warning, and a batch size of 8 may be used where 1 was meant.

    A file without a version is read by the newest release that takes what it sets. What later releases refuse is a
    warning, which says from which release on.

    A key that another known release has is a warning if no version is given: the file may be written for that release.
    Say which one it is (`--with transformers==5.23.0`).

    Correct the name. The message names renamed keys: `torch_dtype` is now `dtype`, `max_seq_length` is `max_length`.
    """
    trainer = trainer_of(run)
    if trainer is None:
        return
    severity, effect = trainer.unknown_keys(run)
    for name in trainer.stopping(run):
        now = RENAMED.get(name, "")
        means = f"; it is {now} now" if now else ""
        message = f"{name} stops from {trainer.stops_from(run, name)} on{means}"
        yield Hit(message, _place_of(run, name), _todays_name(run, name, now), severity=Severity.WARNING)
    for strange in trainer.strange_keys(run):
        key, release = _place_of(run, strange.key), trainer.release_with(run, strange.key)
        if release:
            message = f"{strange.key} is a key of {release}; the version that is assumed here does not have it"
            yield Hit(message, key, severity=Severity.WARNING)
            continue
        message, fix = f"{strange.why}; {effect}", _drop_or_rename(run, strange, severity)
        yield Hit(message, key, fix, severity=severity)


def _todays_name(run: RunSpec, name: str, now: str) -> Fix | None:
    """Return the fix that writes a file's key under its name of today; a script's calls are left alone."""
    values, key = run.config.document.values, join_key((name,))
    if not now or name not in values:
        return None
    if now in values:
        return unsafe(f"Delete {name}: {now} is set", delete_key(key))
    return unsafe(f"Write {now}", insert_key(now, values[name], beside=key), delete_key(key))


def _place_of(run: RunSpec, name: str) -> str:
    """Return the key by which an argument is found: a script's are read under their names of today."""
    return join_key((name if name in run.config.document.values else RENAMED.get(name, name),))


def _drop_or_rename(run: RunSpec, strange: StrangeKey, severity: Severity) -> Fix | None:
    key = join_key((strange.key,))
    if strange.key not in run.config.document.values:  # a script's, which is read under another name
        return None
    if strange.drop:
        doubtful = run.config.document.script is not None and severity is not Severity.ERROR
        return (unsafe if doubtful else safe)(f"Delete {strange.key}, which is never read", delete_key(key))
    if strange.now is None:
        return None
    value = run.config.document.values[strange.key]
    if strange.now in run.config:  # two names for one setting: the one that is read stays
        same = run.config.get(strange.now) == value or value is None
        return (safe if same else unsafe)(f"Delete {strange.key}: {strange.now} is set", delete_key(key))
    if value is None:
        return safe(f"Delete {strange.key}, which is empty", delete_key(key))
    return unsafe(f"Write {strange.now}", insert_key(strange.now, value, beside=key), delete_key(key))
