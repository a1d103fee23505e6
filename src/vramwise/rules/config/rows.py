"""duplicate-key and placeholder-left: what a reader of the file would see at a glance."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import DuplicateKey, RunSpec, Severity

_TOP = "base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"


@rule(
    id="duplicate-key",
    severity=Severity.WARNING,
    topic="config",
    bad="base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 2\nlearning_rate: 0.0002\nmicro_batch_size: 8\n",
    good="base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 8\nlearning_rate: 0.0002\n",
    beyond_trainer="YAML forbids duplicate keys, but the parser that trainers use silently takes the last value.",
)
def duplicate_key(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A key appears twice in the file, and only the last value counts.

    The parser silently takes the last value, so changing the first one has no effect. If the two differ, a run may
    need a different amount of memory than the line you look at suggests. Of 184 public configs, 20 have such a key.
    """
    for found in run.duplicate_keys:
        yield Hit(place=found.last, message=_message(found))


def _message(found: DuplicateKey) -> str:
    first, last = found.first.line, found.last.line
    where = f"on line {first} and again on line {last}" if first != last else f"twice on line {first}"
    return f"duplicate key '{found.key}' ({where}): only the last value counts; remove one of them"


@rule(
    id="placeholder-left",
    severity=Severity.WARNING,
    topic="config",
    bad=f"{_TOP}datasets:\n  - path: your/dataset\n    type: alpaca\n",
    good=f"{_TOP}datasets:\n  - path: tatsu-lab/alpaca\n    type: alpaca\n",
    beyond_trainer="The trainer looks for a dataset of that name and stops when there is none.",
)
def placeholder_left(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A placeholder stands where your data belongs.

    `vramwise new` without `--data` writes `your/dataset`. Put the path or the hub id of your data there, and check that
    the type beside it fits its columns. `vramwise new … --data FILE` writes both.
    """
    for key in run.placeholders:
        message = f"{key} is a placeholder: name your data there, or the run stops when it loads it"
        yield Hit(field=key, message=message)
