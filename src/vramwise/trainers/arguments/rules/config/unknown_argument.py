"""unknown-argument"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.arguments.trainer import trainer_of
from vramwise.trainers.arguments.unknown_keys import StrangeKey
from vramwise.types import Fix, RunSpec, Severity, join_key


@rule(
    id="unknown-argument",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="config",
    bad="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nuse_peft: true\nlora_drpout: 0.1\n",
    good="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nuse_peft: true\nlora_dropout: 0.1\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A key that the trainer does not have.

    Files for TRL, LLaMA-Factory and transformers' Trainer are read into dataclasses. A key that none of them has is
    either misspelt, so the intended setting has no effect, or belongs to another version. LLaMA-Factory stops. TRL's
    command treats it as an option of `accelerate launch`, which stops with `unrecognized arguments`. A script started
    as a module drops it without warning, and a batch size of 8 may be used where 1 was meant.

    A key that another known release has is a warning if no version is given: the file may be written for that release.
    Say which one it is (`--with transformers==5.23.0`).

    Correct the name. The message names renamed keys: `torch_dtype` is now `dtype`, `max_seq_length` is `max_length`.
    """
    trainer = trainer_of(run)
    if trainer is None:
        return
    severity, effect = trainer.unknown_keys(run)
    for strange in trainer.strange_keys(run):
        key, release = join_key((strange.key,)), trainer.release_with(run, strange.key)
        if release:
            message = f"{strange.key} is a key of {release}; the version that is assumed here does not have it"
            yield Hit(key=key, message=message, severity=Severity.WARNING)
            continue
        message, fix = f"{strange.why}; {effect}", _fix(run, strange, severity)
        yield Hit(key=key, message=message, severity=severity, fix=fix)


def _fix(run: RunSpec, strange: StrangeKey, severity: Severity) -> Fix | None:
    key = join_key((strange.key,))
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
