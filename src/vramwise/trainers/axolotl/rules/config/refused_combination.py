"""refused-combination"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from vramwise.rules.base import Hit, delete_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.refusals import NOT_TOGETHER, refusals
from vramwise.types import RunSpec, Severity


@rule(
    id="refused-combination",
    severity=Severity.ERROR,
    topic="config",
    bad="base_model: meta-llama/Llama-3.2-1B\nwarmup_steps: 10\nwarmup_ratio: 0.1\n",
    good="base_model: meta-llama/Llama-3.2-1B\nwarmup_steps: 10\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Axolotl refuses two keys together, or one without the other.

    These combinations do not affect memory, but each stops the run at the start. Examples: two warm-up lengths,
    deduplication of a stream, `peft_layers_pattern` without `peft_layers_to_transform`, options of one RL method with
    another, and a tokenizer option that mistral-common does not support. The message names the keys and the reason.
    Delete one key, or add the missing one.
    """
    for key, other, why in NOT_TOGETHER:
        if run.config.get(key) and run.config.get(other):
            message = f"Axolotl refuses {key} together with {other}: {why}"
            yield Hit(key=key, message=message, fix=unsafe(f"Delete {key}", delete_key(key)))
    for key, message in refusals(run):
        yield Hit(key=key, message=message)
    yield from _target_patterns(run)


def _target_patterns(run: RunSpec) -> Iterator[Hit]:
    written = run.config.get("lora_target_modules")
    for index, pattern in enumerate(written if isinstance(written, list) else ()):
        fault = _fault(pattern) if isinstance(pattern, str) else ""
        if fault:
            message = f"Axolotl refuses lora_target_modules '{pattern}': not a valid pattern ({fault})"
            yield Hit(key=f"lora_target_modules.{index}", message=message)


@lru_cache(maxsize=32_768)  # more than a config may list: a search checks the same list repeatedly
def _fault(pattern: str) -> str:
    """Return why Python cannot compile a pattern; "" if it can."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return str(error)
    return ""
