"""refused-arguments"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.trl.refusals import refusals
from vramwise.types import RunSpec, Severity

_BASE = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\n"


@rule(
    id="refused-arguments",
    severity=Severity.ERROR,
    topic="config",
    bad=f"{_BASE}reward_funcs: think_format_reward\nnum_generations: 6\nper_device_train_batch_size: 8\n",
    good=f"{_BASE}reward_funcs: think_format_reward\nnum_generations: 4\nper_device_train_batch_size: 8\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Arguments that TRL's configs or its launcher refuse.

    The checks stand in TRL's own configs: generations that hold no whole groups of completions, 8 and 4 bits at once,
    weights for another number of losses. What the command hands on to `accelerate launch` is checked there: a
    `mixed_precision` that it does not know stops the run as well. Nothing is loaded by then.
    """
    for key, why in refusals(run):
        yield Hit(key=key, message=f"{why}: TRL refuses the file")
