"""placeholder-left"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

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
    for key in run.placeholders:
        message = f"{key} is a placeholder: name your data there, or the run stops when it loads it"
        yield Hit(place=run.config.place(key), message=message)
