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
    """Arguments that TRL's configs or its launcher reject.

    TRL's own configs check these: generations without whole groups of completions, 8 and 4 bits at once,
    weights for another number of losses. Options passed on to `accelerate launch` are checked there: an unknown
    `mixed_precision` also stops the run. All of this happens before anything is loaded.
    """
    for key, why in refusals(run):
        yield Hit(key=key, message=f"{why}: TRL rejects the file")
