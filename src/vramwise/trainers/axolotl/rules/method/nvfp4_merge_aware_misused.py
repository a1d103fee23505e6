"""nvfp4-merge-aware-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, safe, set_key
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import lists_plugin
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity

_KEY = "nvfp4_merge_aware"
_START = "nvfp4_merge_aware_start_step"
_FUSED = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
_PLUGIN = "plugins:\n  - axolotl.integrations.kernels.KernelsPlugin\n"


@rule(
    id="nvfp4-merge-aware-misused",
    severity=Severity.ERROR,
    topic="method",
    bad=f"{_PLUGIN}adapter: lora\nexpert_backend: sonicmoe\nnvfp4_merge_aware: true\nlora_qkv_kernel: true\n",
    good=f"{_PLUGIN}adapter: lora\nexpert_backend: sonicmoe\nnvfp4_merge_aware: true\nlora_qkv_kernel: false\n",
    options="--with axolotl==0.19.0",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`nvfp4_merge_aware` without the settings that it needs.

    This option trains the adapter on the grid of an NVFP4 base, so that merging loses nothing. It needs the sonicmoe
    expert backend, `adapter: lora`, and LoRA layers that are really called, which the fused `lora_*_kernel`s bypass.
    Otherwise Axolotl refuses the file. It also refuses `nvfp4_merge_aware_start_step` without the option, or with a
    value that is neither a step nor a fraction between 0 and 1. Since 0.21 it turns the option off itself if an adapter
    is missing, and refuses only ScatterMoE and such a value.
    """
    if lists_plugin(run, "KernelsPlugin"):
        if schema_of(run).since("0.21.0"):
            yield from _since_021(run)
        elif run.config.get(_KEY):
            yield from _switched_on(run)
        elif run.config.get(_START) is not None:
            yield Hit(key=_START, message=f"Axolotl refuses {_START} without {_KEY}: true")


def _since_021(run: RunSpec) -> Iterator[Hit]:
    """The cases that Axolotl still refuses: in the others it warns or turns the option off."""
    scatter = run.config.get("use_scattermoe") or str(run.config.get("expert_backend")).lower() == "scattermoe"
    if run.config.get(_KEY) and scatter:
        yield Hit(key=_KEY, message=f"Axolotl refuses {_KEY} with ScatterMoE: it needs sonicmoe")
    if run.config.get(_KEY) is False or (run.config.get(_KEY) and run.adapter.kind not in ("lora", "multilora")):
        return
    yield from _start_step(run)


def _switched_on(run: RunSpec) -> Iterator[Hit]:
    sonic = run.config.get("use_sonicmoe") or str(run.config.get("expert_backend")).lower() == "sonicmoe"
    if not sonic:
        yield Hit(key=_KEY, message=f"Axolotl refuses {_KEY} without expert_backend: sonicmoe")
    if run.adapter.kind != "lora":
        yield Hit(
            key=_KEY,
            message=f"Axolotl refuses {_KEY} without adapter: lora (found: {run.adapter.kind or 'none'})",
        )
    fused = [key for key in _FUSED if run.config.get(key) is True]
    if fused:
        message = f"Axolotl refuses {_KEY} with {', '.join(fused)}: fused kernels bypass the LoRA layers"
        yield Hit(
            key=fused[0], message=message, fix=safe("Turn the kernels off", *(set_key(key, False) for key in fused))
        )
    yield from _start_step(run)


def _start_step(run: RunSpec) -> Iterator[Hit]:
    start = run.config.get(_START)
    if start is not None and not _is_step_or_fraction(start):
        message = f"Axolotl refuses {_START} {start}: it must be a step (0, 1, 2…) or a fraction between 0 and 1"
        yield Hit(key=_START, message=message)


def _is_step_or_fraction(start: object) -> bool:
    if isinstance(start, bool):
        return False
    return 0 < start < 1 if isinstance(start, float) else isinstance(start, int) and start >= 0
