"""eval-batch-differs"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="eval-batch-differs",
    explains={"after-eval", "eval-batch"},
    severity=Severity.WARNING,
    costs_memory=True,
    figured="yes",
    topic="eval",
    bad="micro_batch_size: 4\neval_batch_size: 16\nval_set_size: 0.05\nevals_per_epoch: 2\n",
    good="micro_batch_size: 4\neval_batch_size: 4\nval_set_size: 0.05\nevals_per_epoch: 2\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Evaluation uses a different batch size than training.

    The allocator caches blocks in the shapes of training. Evaluation with a different batch size needs other shapes:
    the cached blocks do not fit, and new segments are reserved in addition to the old ones. Memory jumps at the first
    evaluation, and a run that fit so far fails there.

    Measured on one H200, Llama-3.2-1B shape, LoRA, training batch 4, torch's default allocator: eval batch 4 reserves
    16.8 GiB, eval batch 8 reserves 24.6 GiB, eval batch 16 reserves 36.3 GiB, of which 22.1 GiB are ever allocated.

    Packed evaluation reuses the training sampler, so the eval batch size has no effect and nothing is reported.
    Evaluating at the training micro-batch gives the same eval loss.
    """
    micro, batch = run.batch.micro_batch_size, run.evaluation.eval_batch_size
    if batch is None or batch == micro:
        return
    keys = run.keys
    unset = " (the default when unset)" if run.origins["eval_batch_size"].kind == "default" else ""
    message = (
        f"{keys['eval_batch_size']} {batch}{unset} differs from {keys['micro_batch_size']} {micro}: evaluation needs "
        "blocks of other sizes than training left in the cache, so reserved memory jumps at the first evaluation and "
        "stays high"
    )
    if not run.evaluation.eval_scheduled:
        message += " (no evaluation is scheduled yet)"
    yield Hit(field="eval_batch_size", message=message, change=changes.equal_eval_batch(run))
