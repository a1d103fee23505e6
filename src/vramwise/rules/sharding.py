"""Rules for every trainer about several cards, and about a generation engine that shares one."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.units import gib
from vramwise.variants import changes


@rule(
    id="engine-share-too-small",
    needs={"gpu", "memory"},
    bad=(
        "# GRPO\nmodel_name_or_path: Qwen/Qwen2.5-7B-Instruct\nreward_funcs: [accuracy_reward]\nuse_peft: true\n"
        "dtype: bfloat16\nuse_vllm: true\nvllm_mode: colocate\nvllm_gpu_memory_utilization: 0.1\n"
    ),
    good=(
        "# GRPO\nmodel_name_or_path: Qwen/Qwen2.5-7B-Instruct\nreward_funcs: [accuracy_reward]\nuse_peft: true\n"
        "dtype: bfloat16\nuse_vllm: true\nvllm_mode: colocate\nvllm_gpu_memory_utilization: 0.4\n"
    ),
    options="--gpu h100",
    beyond_trainer="The trainer passes the share on; vLLM finds out when it has loaded the weights.",
)
def engine_share_too_small(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """vLLM's share of the card is smaller than the weights it loads.

    vLLM beside the policy takes a share of the whole card for its weights, its working memory and the cache of keys
    and values. If the weights alone exceed the share, nothing is left for the cache, and vLLM stops with `No available
    memory for the cache blocks`. Working memory and the cache of one full row come on top, so the share has to be
    larger than the weights by some GiB.
    """
    gpu = run.target.gpu
    if memory is None or gpu is None or run.objective.engine != "beside":
        return
    share, weights = run.objective.engine_share, memory.engine_weights_bytes
    if share * gpu.memory_bytes >= weights:
        return
    least = ceil(100 * weights / gpu.memory_bytes) / 100
    yield Hit(
        field="engine_share",
        message=(
            f"vLLM gets {share:g} of the card, {gib(int(share * gpu.memory_bytes))}, but its weights take "
            f"{gib(weights)}: it stops with `No available memory for the cache blocks`; it needs more than {least:g}"
        ),
    )


@rule(
    id="fsdp-accumulates-whole-gradients",
    severity=Severity.WARNING,
    costs_memory=True,
    figured="yes",
    options="--gpus 4",
    bad="micro_batch_size: 1\ngradient_accumulation_steps: 4\nfsdp_version: 2\n"
    "fsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
    good="micro_batch_size: 4\ngradient_accumulation_steps: 1\nfsdp_version: 2\n"
    "fsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
)
def fsdp_accumulates_whole_gradients(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A full fine-tune under FSDP accumulates unsharded gradients.

    FSDP shards gradients when it synchronises them, and the trainer does that only at the last micro-step. Until then
    every rank holds the gradients of the whole model: 2 bytes per parameter in bf16, 15 GiB for an 8B model,
    regardless of the number of GPUs.

    A larger micro-batch instead of accumulation keeps the effective batch and avoids this, but needs more activations;
    `vramwise predict --what-if` shows which is less. Or synchronise at every micro-step (`accelerator_config`,
    `gradient_accumulation_kwargs`, `sync_each_batch: true`): more traffic between the GPUs, and sums rounded in a
    different order. Adapters have small gradients, so they are not reported.
    """
    steps = run.batch.gradient_accumulation_steps
    if not run.sharding.is_fsdp or run.batch.gpus < 2 or run.adapter.kind or steps < 2 or run.sharding.sync_each_batch:
        return
    field = "gradient_accumulation_steps"
    message = (
        f"{run.keys[field]} {steps} under FSDP: gradients are synchronised only at the last micro-step, so until then "
        f"each of {run.batch.gpus} GPUs holds the gradients of the whole model, not its shard"
    )
    yield Hit(field=field, message=message, change=changes.exchange_each_step(run))


@rule(
    id="full-state-dict-gather",
    explains={"save-gather"},
    severity=Severity.INFO,
    bad="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  state_dict_type: FULL_STATE_DICT\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  state_dict_type: SHARDED_STATE_DICT\n",
    options="--gpus 2",
    beyond_trainer="The trainer accepts both types; FULL_STATE_DICT gathers the model for every checkpoint.",
)
def full_state_dict_gather(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Every FSDP checkpoint gathers the whole model.

    `state_dict_type: FULL_STATE_DICT` collects all shards into the host memory of rank 0 each time a checkpoint is
    written: the memory and the pause grow with the whole model, not with one rank's share. SHARDED_STATE_DICT lets
    each rank write its own part; the trainer merges them at the end, on the CPU. `final_state_dict_type:
    FULL_STATE_DICT` gathers once, for the final model. Adapters are small, so they are not reported.
    """
    if run.adapter.kind or not run.sharding.is_fsdp or not run.sharding.gathers_checkpoints:
        return
    yield Hit(
        field="gathers_checkpoints",
        message="state_dict_type FULL_STATE_DICT gathers the whole model in rank 0's host memory for every checkpoint",
        change=changes.shard_checkpoints(run),
    )
