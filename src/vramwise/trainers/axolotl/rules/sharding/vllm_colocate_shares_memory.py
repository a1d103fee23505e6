"""vllm-colocate-shares-memory"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import Edit, RunSpec, Severity
from vramwise.units import gib

_KEY = "vllm.gpu_memory_utilization"
_TRL_DEFAULT = 0.3


@rule(
    id="vllm-colocate-shares-memory",
    severity=Severity.WARNING,
    also=(Severity.INFO,),
    topic="sharding",
    bad="rl: grpo\ntrl:\n  use_vllm: true\n  vllm_mode: colocate\n",
    good="rl: grpo\ntrl:\n  use_vllm: true\n  vllm_mode: colocate\nvllm:\n  gpu_memory_utilization: 0.3\n",
    beyond_trainer="Axolotl accepts it; up to 0.20 it gives vLLM 0.9 of the card, while TRL's default is 0.3.",
    options="--with axolotl==0.20.0",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """vLLM reserves most of the card that is used for training.

    With `trl.vllm_mode: colocate` vLLM reserves `vllm.gpu_memory_utilization` of the whole card for its weights and
    cache, and training must fit into the rest. If the key is unset, Axolotl up to 0.20 passes 0.9, which hardly ever
    fits next to the model that is loaded for training. Since 0.21 TRL's default applies, 0.3. The rule reports a share
    above one half. With `trl.vllm_enable_sleep_mode: true` vLLM frees its share during training, and the finding is
    only a note. `vllm_mode: server` moves vLLM to other cards.
    """
    if not run.config.get("trl.use_vllm") or run.config.get("trl.vllm_mode") != "colocate":
        return
    share = run.config.get(_KEY, schema_of(run).defaults("vllm").get("gpu_memory_utilization", _TRL_DEFAULT))
    if not isinstance(share, int | float) or share <= 0.5:
        return
    sleeps = run.config.get("trl.vllm_enable_sleep_mode") is True
    default = ", the default" if run.config.get(_KEY) is None else ""
    yield Hit(
        key=_KEY,
        severity=Severity.INFO if sleeps else Severity.WARNING,
        message=(
            f"vllm_mode colocate: vLLM reserves {share:g} of the card{_size(run, share)}{default}, and training must "
            f"fit into the other {1 - share:.2g}{' whenever vLLM is awake' if sleeps else ''}"
        ),
        fix=unsafe(f"Give vLLM {_TRL_DEFAULT}, TRL's default", _give(run)),
    )


def _size(run: RunSpec, share: float) -> str:
    gpu = run.target.gpu
    return "" if gpu is None else f" ({share:g} × {gib(gpu.memory_bytes)} = {gib(int(share * gpu.memory_bytes))})"


def _give(run: RunSpec) -> Edit:
    block = run.config.get("vllm")
    if block:
        return insert_key(_KEY, _TRL_DEFAULT, beside=f"vllm.{next(iter(block))}")
    return insert_key("vllm", {"gpu_memory_utilization": _TRL_DEFAULT}, beside="trl")
