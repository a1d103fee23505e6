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
    """Contradicting or unknown choices for the experts' kernels.

    Experts run on one backend: `expert_backend` (scattermoe, sonicmoe, eager, builtin) or the older switches
    `use_scattermoe` and `use_sonicmoe`. Two at once, or a name that is not known, are refused. `experts_implementation`
    that names a kernel whose switch is off, or an unknown one, is replaced by `eager`, the slow loop over experts.
    `nonexpert_quantization` takes none, bf16, fp8, fp8_blockwise, nf4 or nvfp4.

    The keys belong to the kernels plugin; without it they are dropped and the rule is silent.
    """
    if not lists_plugin(run, "KernelsPlugin"):
        return
    yield from _backends(run)
    yield from _implementation(run)
    policy = run.config.get("nonexpert_quantization")
    if policy is not None and str(policy).lower() not in _NON_EXPERT:
        message = f"nonexpert_quantization: {policy} is none of {', '.join(_NON_EXPERT)}: Axolotl refuses the file"
        yield Hit(key="nonexpert_quantization", message=message)


def _backends(run: RunSpec) -> Iterator[Hit]:
    backend = run.config.get("expert_backend")
    wanted = None if backend is None else str(backend).lower()
    if wanted is not None and wanted not in _BACKENDS:
        message = f"expert_backend: {backend} is none of {', '.join(_BACKENDS)}: Axolotl refuses the file"
        yield Hit(key="expert_backend", message=message)
        return
    switches = [name for name in ("scattermoe", "sonicmoe") if run.config.get(f"use_{name}") is True]
    if wanted is not None:
        for name in switches:
            if name != wanted:
                fix = unsafe(f"Keep expert_backend {wanted}", delete_key(f"use_{name}"))
                message = f"use_{name}: true contradicts expert_backend: {wanted}: Axolotl refuses the file"
                yield Hit(key=f"use_{name}", message=message, fix=fix)
    elif len(switches) == 2:
        fix = unsafe("Keep ScatterMoE", delete_key("use_sonicmoe"))
        message = "use_scattermoe and use_sonicmoe: experts run on one backend, Axolotl refuses the file"
        yield Hit(key="use_sonicmoe", message=message, fix=fix)


def _implementation(run: RunSpec) -> Iterator[Hit]:
    name = run.config.get("experts_implementation")
    if name is None:
        return
    if name not in _IMPLEMENTATIONS:
        message = (
            f"experts_implementation: {name} is not known: Axolotl takes eager instead, the slow loop over experts"
        )
        yield Hit(key="experts_implementation", message=message, severity=Severity.WARNING)
    elif name in ("scattermoe", "sonicmoe") and not _switched_on(run, name):
        message = (
            f"experts_implementation: {name} without use_{name}: true: Axolotl takes eager instead, the slow loop over "
            "experts"
        )
        fix = unsafe(f"Switch {name} on", insert_key(f"use_{name}", True, beside="experts_implementation"))
        yield Hit(key="experts_implementation", message=message, fix=fix, severity=Severity.WARNING)


def _switched_on(run: RunSpec, name: str) -> bool:
    return bool(run.config.get(f"use_{name}")) or str(run.config.get("expert_backend")).lower() == name
