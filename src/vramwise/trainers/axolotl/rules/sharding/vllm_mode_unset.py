"""vllm-mode-unset"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, safe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="vllm-mode-unset",
    severity=Severity.INFO,
    topic="sharding",
    bad="rl: grpo\nmicro_batch_size: 4\ntrl:\n  use_vllm: true\n  num_generations: 4\n",
    good="rl: grpo\nmicro_batch_size: 4\ntrl:\n  use_vllm: true\n  vllm_mode: server\n  num_generations: 4\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """vLLM is used, but not said where.

    `trl.use_vllm: true` without `vllm_mode` means `server`: training connects to a vLLM server that you start
    yourself on other cards, and waits for it. `colocate` shares the training card. Write the one you mean.
    """
    if run.config.get("trl.use_vllm") and not run.config.get("trl.vllm_mode"):
        yield Hit(
            key="trl.use_vllm",
            message="trl.use_vllm without vllm_mode means server: training waits for a vLLM server on other cards",
            fix=safe(
                "Write the default: vllm_mode server", insert_key("trl.vllm_mode", "server", beside="trl.use_vllm")
            ),
        )
