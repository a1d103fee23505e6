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
    beyond_trainer="The trainer does not look at memory; the run is simulated here, and it runs out.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The run is predicted to run out of memory on this card.

    The run is simulated allocation by allocation, with the allocator's settings of this run, until a request cannot be
    served even after all cached blocks are given back. The message names the step and phase where that happens.

    Where rows follow the data and their lengths are not known, full rows are taken. If shorter ones would fit, this is
    a warning that says up to which length; `--data` reads the lengths.

    `vramwise predict` shows what takes the memory and, with `--what-if`, what a change would bring. What keeps the
    training result: a smaller micro-batch against more accumulation, gradient checkpointing, a loss kernel that does
    not hold the logits (Liger's fused linear cross entropy, cut cross entropy), evaluation at the micro-batch,
    expandable segments. What changes it: an adapter, a quantised base, an 8-bit optimizer, a shorter sequence.
    """
    failure = memory.out_of_memory if memory else None
    if memory is None or failure is None or run.target.gpu is None:
        return
    where = f"step {failure.step}, {failure.phase}" if failure.step else failure.phase
    yield Hit(
        field="base_model",
        message=(
            f"predicted out of memory on {run.target.gpu.name} in {where}: {gib(failure.allocated_bytes)} allocated "
            f"and {gib(failure.reserved_bytes)} reserved of {gib(memory.capacity_bytes or 0)} when "
            f"{readable(failure.requested_bytes)} more are asked for ({failure.label})"
        ),
    )
