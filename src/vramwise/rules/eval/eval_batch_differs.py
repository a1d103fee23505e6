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
    """Evaluation uses another batch size than training.

    The allocator caches blocks in the shapes of training. An eval at another batch size asks for other shapes: the
    cached blocks do not serve them, new segments are reserved beside the old ones, and what was reserved stays
    reserved. Memory jumps at the first eval, and a run that fitted fails there.

    Measured on one H200, Llama-3.2-1B shape, LoRA, training batch 4, torch's default allocator: eval batch 4 reserves
    16.8 GiB, eval batch 8 reserves 24.6 GiB, eval batch 16 reserves 36.3 GiB, of which 22.1 GiB are ever allocated.

    Packed eval reuses the training sampler, so the eval batch size has no effect there and the rule is silent.
    Evaluating at the training micro-batch gives the same eval loss.
    """
    micro, batch = run.batch.micro_batch_size, run.evaluation.eval_batch_size
    if batch is None or batch == micro:
        return
    keys = run.keys
    unset = " (unset, it does not follow training)" if run.origins["eval_batch_size"].kind == "default" else ""
    message = (
        f"{keys['eval_batch_size']} {batch}{unset} differs from {keys['micro_batch_size']} {micro}: evaluation asks "
        "for blocks of other sizes than training left in the cache, so reserved memory jumps at the first eval and "
        "stays up"
    )
    if not run.evaluation.eval_scheduled:
        message += " (no eval is scheduled yet)"
    yield Hit(field="eval_batch_size", message=message, change=changes.equal_eval_batch(run))
