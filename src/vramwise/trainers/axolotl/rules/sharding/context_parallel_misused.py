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
    """Context parallelism with an attention or a batch that it does not support.

    Context parallelism splits each sequence across GPUs. Up to Axolotl 0.19 it uses ring attention, which supports only
    FlashAttention 2. With `sample_packing` it processes one row at a time, so `micro_batch_size` must be 1. Since 0.20
    every attention except `eager` works, with several packed rows too. GLM's own sparse-attention kernels do not
    support packed rows. Under DeepSpeed (since 0.21) only SFT works. Otherwise Axolotl stops.
    """
    size, schema = run.sharding.context_parallel_size, schema_of(run)
    if size <= 1:
        return
    if schema.since("0.20.0"):
        yield from _by_plugin(run, schema)
        return
    if run.config.get("use_glm_dsa_kernels"):
        return  # they have their own way of splitting sequences
    if base_name(run.kernels.attn_implementation) != "flash_attention_2":
        yield Hit(
            field="attn_implementation",
            message=(
                f"Axolotl refuses context_parallel_size {size} with {run.kernels.attn_implementation} attention: ring "
                "attention needs flash_attention_2"
            ),
            change=changes.flash_attention(run),
        )
    yield from _packed_rows(run)


def _by_plugin(run: RunSpec, schema: Schema) -> Iterator[Hit]:
    size, own_kernels = run.sharding.context_parallel_size, bool(run.config.get("use_glm_dsa_kernels"))
    if run.kernels.attn_implementation == "eager" and not own_kernels:
        yield Hit(
            key=run.origins["attn_implementation"].key or "attn_implementation",
            message=f"Axolotl refuses context_parallel_size {size} with eager attention",
            change=changes.fused_attention(run),
        )
    if own_kernels and (run.shapes.sample_packing or run.config.get("batch_flattening")):
        message = f"Axolotl refuses use_glm_dsa_kernels with context_parallel_size {size} and packed rows"
        yield Hit(key="use_glm_dsa_kernels", message=message)
    if run.config.get("deepspeed") and schema.since("0.21.0") and (run.objective.rl or own_kernels):
        what = f"rl {run.objective.rl}" if run.objective.rl else "use_glm_dsa_kernels"
        message = f"Axolotl refuses {what} with context_parallel_size {size} under DeepSpeed; use FSDP2"
        yield Hit(key="deepspeed", message=message)


def _packed_rows(run: RunSpec) -> Iterator[Hit]:
    micro = run.batch.micro_batch_size
    if not run.shapes.sample_packing or micro == 1:
        return
    yield Hit(
        key="micro_batch_size",
        message=(
            f"Axolotl refuses micro_batch_size {micro} with context_parallel_size "
            f"{run.sharding.context_parallel_size} and sample_packing: it must be 1"
        ),
        change=changes.one_row(run),
    )
