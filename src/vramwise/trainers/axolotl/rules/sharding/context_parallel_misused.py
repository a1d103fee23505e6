"""context-parallel-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.facts.attention import base_name
from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="context-parallel-misused",
    severity=Severity.ERROR,
    topic="sharding",
    bad="base_model: meta-llama/Llama-3.2-1B\ncontext_parallel_size: 2\nattn_implementation: sdpa\n",
    good="base_model: meta-llama/Llama-3.2-1B\ncontext_parallel_size: 2\nattn_implementation: flash_attention_2\n",
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Context parallelism without FlashAttention 2, or with packed batches of several rows.

    Context parallelism splits each sequence across GPUs and runs ring attention, which exists for FlashAttention 2
    only; with `sample_packing` it takes one row at a time, so `micro_batch_size` has to be 1. Axolotl stops
    otherwise. (GLM's own sparse-attention kernels bring their own way and are not judged.)
    """
    size = run.context_parallel_size
    if size <= 1 or run.config.get("use_glm_dsa_kernels"):
        return
    if base_name(run.attn_implementation) != "flash_attention_2":
        yield Hit(
            key="attn_implementation",
            near=("context_parallel_size", "sequence_parallel_degree"),
            message=(
                f"context_parallel_size {size} runs ring attention on flash_attention_2 only, attention is "
                f"{run.attn_implementation}: Axolotl stops"
            ),
            change=changes.flash_attention(run),
        )
    yield from _packed_rows(run)


def _packed_rows(run: RunSpec) -> Iterator[Hit]:
    micro = run.micro_batch_size
    if not run.sample_packing or micro == 1:
        return
    yield Hit(
        key="micro_batch_size",
        message=(
            f"context_parallel_size {run.context_parallel_size} with sample_packing takes one row at a time, "
            f"micro_batch_size is {micro}: Axolotl stops"
        ),
        change=changes.one_row(run),
    )
