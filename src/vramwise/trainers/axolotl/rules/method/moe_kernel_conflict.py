"""moe-kernel-conflict"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import lists_plugin
from vramwise.types import RunSpec, Severity

_BACKENDS = ("scattermoe", "sonicmoe", "eager", "builtin")
_IMPLEMENTATIONS: tuple[str, ...] = ("eager", "batched_mm", "grouped_mm", "scattermoe", "sonicmoe")
_IMPLEMENTATIONS += ("deep_ep", "deep_ep_grouped_mm", "deep_ep_scattermoe", "deep_ep_sonicmoe")
_NON_EXPERT = ("none", "bf16", "fp8", "fp8_blockwise", "nf4", "nvfp4")
_PLUGIN = "plugins:\n  - axolotl.integrations.kernels.KernelsPlugin\n"


@rule(
    id="moe-kernel-conflict",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="method",
    bad=f"{_PLUGIN}use_scattermoe: true\nuse_sonicmoe: true\n",
    good=f"{_PLUGIN}use_scattermoe: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Contradictory or unknown settings for the experts' kernels.

    Experts run on one backend: `expert_backend` (scattermoe, sonicmoe, eager, builtin) or the older switches
    `use_scattermoe` and `use_sonicmoe`. Axolotl refuses two at once, or an unknown name. If `experts_implementation` is
    unknown, or names a kernel whose switch is off, Axolotl uses `eager` instead, the slow loop over experts.
    `nonexpert_quantization` accepts none, bf16, fp8, fp8_blockwise, nf4 or nvfp4.

    The keys belong to the kernels plugin. Without it Axolotl drops them and the rule reports nothing.
    """
    if not lists_plugin(run, "KernelsPlugin"):
        return
    yield from _backends(run)
    yield from _implementation(run)
    policy = run.config.get("nonexpert_quantization")
    if policy is not None and str(policy).lower() not in _NON_EXPERT:
        message = f"Axolotl refuses nonexpert_quantization: {policy}; supported are {', '.join(_NON_EXPERT)}"
        yield Hit(key="nonexpert_quantization", message=message)


def _backends(run: RunSpec) -> Iterator[Hit]:
    backend = run.config.get("expert_backend")
    wanted = None if backend is None else str(backend).lower()
    if wanted is not None and wanted not in _BACKENDS:
        message = f"Axolotl refuses expert_backend: {backend}; supported are {', '.join(_BACKENDS)}"
        yield Hit(key="expert_backend", message=message)
        return
    switches = [name for name in ("scattermoe", "sonicmoe") if run.config.get(f"use_{name}") is True]
    if wanted is not None:
        for name in switches:
            if name != wanted:
                fix = unsafe(f"Keep expert_backend {wanted}", delete_key(f"use_{name}"))
                message = f"Axolotl refuses use_{name}: true, which contradicts expert_backend: {wanted}"
                yield Hit(key=f"use_{name}", message=message, fix=fix)
    elif len(switches) == 2:
        fix = unsafe("Keep ScatterMoE", delete_key("use_sonicmoe"))
        message = "Axolotl refuses use_scattermoe together with use_sonicmoe: experts run on one backend"
        yield Hit(key="use_sonicmoe", message=message, fix=fix)


def _implementation(run: RunSpec) -> Iterator[Hit]:
    name = run.config.get("experts_implementation")
    if name is None:
        return
    if name not in _IMPLEMENTATIONS:
        message = f"experts_implementation: {name} is unknown: Axolotl uses eager instead, the slow loop over experts"
        yield Hit(key="experts_implementation", message=message, severity=Severity.WARNING)
    elif name in ("scattermoe", "sonicmoe") and not _switched_on(run, name):
        message = (
            f"experts_implementation: {name} without use_{name}: true: Axolotl uses eager instead, the slow loop over "
            "experts"
        )
        fix = unsafe(f"Turn {name} on", insert_key(f"use_{name}", True, beside="experts_implementation"))
        yield Hit(key="experts_implementation", message=message, fix=fix, severity=Severity.WARNING)


def _switched_on(run: RunSpec, name: str) -> bool:
    return bool(run.config.get(f"use_{name}")) or str(run.config.get("expert_backend")).lower() == name
