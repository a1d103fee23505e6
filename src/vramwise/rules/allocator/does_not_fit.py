"""does-not-fit"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.units import gib, readable


@rule(
    id="does-not-fit",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    misfit=True,
    topic="allocator",
    needs={"memory"},
    bad=(
        "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\npad_to_sequence_len: true\nmicro_batch_size: 1\n"
        "bf16: true\ngradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\npad_to_sequence_len: true\nmicro_batch_size: 1\n"
        "bf16: true\ngradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
        "adapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
    ),
    options="--gpu rtx-4090",
    beyond_trainer="The trainer does not check memory; vramwise simulates the run, and it runs out of memory.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The run is predicted to run out of memory on this card.

    Every allocation of the run is simulated with its allocator settings. The finding appears when a request fails even
    after all cached blocks are released. The message names the step and phase.

    If row lengths depend on the data and are unknown, the run is simulated with full rows and, where they nearly fill
    the card, with drawn sequences of mixed ones, which may reserve more: blocks cached for short rows do not hold
    longer ones. If shorter rows would fit, the finding is a warning that names the longest row that fits; use `--data`
    to read the lengths.

    `vramwise predict` shows what uses the memory and, with `--what-if`, the effect of a change. These changes keep the
    training result: a smaller micro-batch with more accumulation, gradient checkpointing, a loss kernel that does not
    hold the logits (Liger's fused linear cross entropy, cut cross entropy), evaluation at the micro-batch, expandable
    segments. These change it: an adapter, a quantised base, an 8-bit optimizer, a shorter sequence.
    """
    failure = memory.out_of_memory if memory else None
    if memory is None or run.target.gpu is None:
        return
    if failure is None:
        yield from _mixed(run, memory, run.target.gpu.name)
        return
    where = f"step {failure.step}, {failure.phase}" if failure.step else failure.phase
    yield Hit(
        field="base_model",
        message=(
            f"predicted out of memory on {run.target.gpu.name} in {where}: {gib(failure.allocated_bytes)} allocated "
            f"and {gib(failure.reserved_bytes)} reserved of {gib(memory.capacity_bytes or 0)} when "
            f"{readable(failure.requested_bytes)} more are requested ({failure.label})"
        ),
    )


def _mixed(run: RunSpec, memory: MemoryReport, card: str) -> Iterator[Hit]:
    """Yield a warning if full rows fit, but mixed ones may not."""
    if memory.mixed_rows_bytes > (memory.capacity_bytes or 0) > 0:
        most = f"{gib(memory.mixed_rows_bytes)} of {gib(memory.capacity_bytes or 0)} on {card}"
        yield Hit(
            field="sequence_len",
            severity=Severity.WARNING,
            message=f"rows of mixed lengths up to {run.shapes.sequence_len} tokens are predicted to reserve {most}",
        )
