"""Rules for every trainer about memory during evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.rules.room import fits_with_a_margin
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.units import gib
from vramwise.variants import changes


@rule(
    id="eval-batch-differs",
    explains={"after-eval", "eval-batch"},
    severity=Severity.WARNING,
    costs_memory=True,
    figured="yes",
    bad="micro_batch_size: 4\neval_batch_size: 16\nval_set_size: 0.05\nevals_per_epoch: 2\n",
    good="micro_batch_size: 4\neval_batch_size: 4\nval_set_size: 0.05\nevals_per_epoch: 2\n",
)
def eval_batch_differs(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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


@rule(
    id="eval-peak",
    severity=Severity.INFO,
    needs={"memory"},
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 2048\npad_to_sequence_len: true\nmicro_batch_size: 1\n"
        "eval_batch_size: 16\nval_set_size: 0.05\neval_steps: 2\nbf16: true\nadapter: lora\nlora_r: 16\n"
        "lora_alpha: 32\nlora_target_linear: true\ngradient_checkpointing: true\n"
        "attn_implementation: flash_attention_2\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 2048\npad_to_sequence_len: true\nmicro_batch_size: 1\n"
        "eval_batch_size: 1\nval_set_size: 0.05\neval_steps: 2\nbf16: true\nadapter: lora\nlora_r: 16\nlora_alpha: 32\n"
        "lora_target_linear: true\ngradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
    ),
    options="--gpu h100",
    beyond_trainer="The trainer does not check memory; vramwise simulates the run.",
)
def eval_peak(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Evaluation, not training, decides how much memory the run needs.

    Evaluation keeps no graph, but with a larger batch its logits alone can exceed a checkpointed training step. The
    run then trains and fails at the first evaluation. Evaluate at the training micro-batch, or use a loss kernel that
    does not hold the logits. If evaluation already uses the micro-batch and 5 % of the card is
    free, this is reported only with `--pedantic`.
    """
    if memory is None or run.evaluation.eval_batch_size is None:
        return
    evals = [peak.peak_allocated_bytes for peak in memory.phases if peak.phase == "eval"]
    training = [peak.peak_allocated_bytes for peak in memory.phases if peak.phase not in ("eval", "load")]
    same = run.evaluation.eval_batch_size == run.batch.micro_batch_size  # then the remedy is already applied
    if evals and training and max(evals) > max(training):
        yield Hit(
            field="eval_batch_size",
            pedantic=same and fits_with_a_margin(memory),
            message=(
                f"evaluation at batch {run.evaluation.eval_batch_size} allocates {gib(max(evals))}, training only "
                f"{gib(max(training))}: evaluation decides whether the run fits"
            ),
        )
