"""placeholder-left"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity, join_key

# What `vramwise new` and `predict` write where no data is named.
_PLACEHOLDER = re.compile(r"your[/_-]dataset")
_TOP = "base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"


@rule(
    id="placeholder-left",
    severity=Severity.WARNING,
    topic="config",
    bad=f"{_TOP}datasets:\n  - path: your/dataset\n    type: alpaca\n",
    good=f"{_TOP}datasets:\n  - path: tatsu-lab/alpaca\n    type: alpaca\n",
    beyond_trainer="The trainer looks for a dataset of that name and stops when there is none.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A placeholder stands where your data belongs.

    `vramwise new` without `--data` writes `your/dataset`. Put the path or the hub id of your data there, and check that
    the type beside it fits its columns. `vramwise new … --data FILE` writes both.
    """
    for key in _placeholders(run.config.document.values):
        yield Hit(key=key, message=f"{key} is a placeholder: name your data there, or the run stops when it loads it")


def _placeholders(values: Mapping[str, Any]) -> Iterator[str]:
    """The keys that hold one, two levels deep."""
    for key, value in values.items():
        if _is_placeholder(value):
            yield key
        for place, block in enumerate(value if isinstance(value, list) else ()):
            inner = block.items() if isinstance(block, Mapping) else ()
            yield from (join_key((key, place, str(name))) for name, one in inner if _is_placeholder(one))


def _is_placeholder(value: Any) -> bool:
    return isinstance(value, str) and _PLACEHOLDER.fullmatch(value) is not None
