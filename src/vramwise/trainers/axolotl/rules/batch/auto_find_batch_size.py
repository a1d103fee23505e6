"""auto-find-batch-size"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_KEY = "auto_find_batch_size"


@rule(
    id="auto-find-batch-size",
    explains={"auto-batch-exhausted"},
    severity=Severity.WARNING,
    also=(Severity.ERROR,),
    topic="batch",
    bad="micro_batch_size: 8\ngradient_accumulation_steps: 4\nauto_find_batch_size: true\n",
    good="micro_batch_size: 8\ngradient_accumulation_steps: 4\n",
    beyond_trainer="transformers shrinks the micro-batch after an out-of-memory and leaves accumulation as it is.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`auto_find_batch_size` changes the effective batch when memory runs out.

    After an out-of-memory transformers starts over with 0.9 of the micro-batch, rounded down, until it fits. It
    leaves gradient_accumulation_steps as it is, so the effective batch shrinks without a word and the learning rate
    no longer fits it. From micro_batch_size 1 there is nothing smaller and the run ends. Under ZeRO 3 transformers
    refuses the option; in RL Axolotl does not pass it on. Lower micro_batch_size and raise accumulation instead.
    """
    if not run.config.get(_KEY):
        return
    if run.objective.rl is not None:
        yield Hit(
            key=_KEY,
            message=f"{_KEY} has no effect with rl {run.objective.rl}: Axolotl does not pass it on",
            fix=safe(f"Remove {_KEY}, which is not passed on", delete_key(_KEY)),
        )
        return
    refused = run.sharding.kind == "zero3"
    yield Hit(
        key=_KEY,
        severity=Severity.ERROR if refused else Severity.WARNING,
        message=f"{_KEY} under ZeRO 3: transformers stops after the model has loaded" if refused else _shrinks(run),
        fix=unsafe(f"Keep the batch as written: remove {_KEY}", delete_key(_KEY)),
    )


def _shrinks(run: RunSpec) -> str:
    micro, steps, ranks = run.batch.micro_batch_size, run.batch.gradient_accumulation_steps, run.batch.data_parallel
    smaller = int(micro * 0.9)
    if smaller == 0:
        return f"{_KEY} with micro_batch_size {micro}: there is no smaller batch, an out-of-memory ends the run anyway"
    return (
        f"{_KEY}: out of memory turns micro {micro} × accumulation {steps} × ranks {ranks} = {micro * steps * ranks} "
        f"into {smaller} × {steps} × {ranks} = {smaller * steps * ranks} or less without a word"
    )
