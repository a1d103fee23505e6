"""context-parallel-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.facts.attention import base_name
from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import Schema, schema_of
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="context-parallel-misused",
    severity=Severity.ERROR,
    topic="sharding",
    bad="base_model: meta-llama/Llama-3.2-1B\ncontext_parallel_size: 2\nattn_implementation: sdpa\n",
    good="base_model: meta-llama/Llama-3.2-1B\ncontext_parallel_size: 2\nattn_implementation: flash_attention_2\n",
    options="--gpus 2 --with axolotl==0.19.0",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Context parallelism where its attention does not work.

    Context parallelism splits each sequence across GPUs. Up to Axolotl 0.19 it runs ring attention, which exists for
    FlashAttention 2 only; with `sample_packing` it takes one row at a time, so `micro_batch_size` has to be 1. Since
    0.20 every attention but `eager` works, with several packed rows too; GLM's own sparse-attention kernels take no
    packed rows. Under DeepSpeed (since 0.21) it is for SFT only. Axolotl stops otherwise.
    """
    size, schema = run.sharding.context_parallel_size, schema_of(run)
    if size <= 1:
        return
    if schema.since("0.20.0"):
        yield from _by_plugin(run, schema)
        return
    if run.config.get("use_glm_dsa_kernels"):
        return  # they bring a way of their own
    if base_name(run.kernels.attn_implementation) != "flash_attention_2":
        yield Hit(
            field="attn_implementation",
            message=(
                f"context_parallel_size {size} runs ring attention on flash_attention_2 only, attention is "
                f"{run.kernels.attn_implementation}: Axolotl stops"
            ),
            change=changes.flash_attention(run),
        )
    yield from _packed_rows(run)


def _by_plugin(run: RunSpec, schema: Schema) -> Iterator[Hit]:
    size, own_kernels = run.sharding.context_parallel_size, bool(run.config.get("use_glm_dsa_kernels"))
    if run.kernels.attn_implementation == "eager" and not own_kernels:
        yield Hit(
            field="attn_implementation",
            message=f"context_parallel_size {size} does not work with eager attention: Axolotl stops",
            change=changes.fused_attention(run),
        )
    if own_kernels and (run.shapes.sample_packing or run.config.get("batch_flattening")):
        message = f"use_glm_dsa_kernels with context_parallel_size {size} takes no packed rows: Axolotl stops"
        yield Hit(key="use_glm_dsa_kernels", message=message)
    if run.config.get("deepspeed") and schema.since("0.21.0") and (run.objective.rl or own_kernels):
        what = f"rl {run.objective.rl}" if run.objective.rl else "use_glm_dsa_kernels"
        message = f"{what} with context_parallel_size {size} does not work under DeepSpeed: Axolotl stops; use FSDP2"
        yield Hit(key="deepspeed", message=message)


def _packed_rows(run: RunSpec) -> Iterator[Hit]:
    micro = run.batch.micro_batch_size
    if not run.shapes.sample_packing or micro == 1:
        return
    yield Hit(
        key="micro_batch_size",
        message=(
            f"context_parallel_size {run.sharding.context_parallel_size} with sample_packing takes one row at a time, "
            f"micro_batch_size is {micro}: Axolotl stops"
        ),
        change=changes.one_row(run),
    )
