"""engine-share-too-small"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.units import gib


@rule(
    id="engine-share-too-small",
    severity=Severity.ERROR,
    topic="sharding",
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
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
