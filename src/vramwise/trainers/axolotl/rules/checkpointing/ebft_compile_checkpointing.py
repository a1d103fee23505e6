"""ebft-compile-checkpointing"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.spell.edits import choose_reentrant
from vramwise.types import RunSpec, Severity

_REENTRANT = "gradient_checkpointing_kwargs.use_reentrant"


@rule(
    id="ebft-compile-checkpointing",
    severity=Severity.ERROR,
    also=(Severity.INFO, Severity.WARNING),
    topic="checkpointing",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nrl: ebft\nebft:\n  mode: strided\n"
        "gradient_checkpointing: true\ntorch_compile: true\n"
    ),
    good="base_model: meta-llama/Llama-3.2-1B\nrl: ebft\nebft:\n  mode: strided\ngradient_checkpointing: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Strided EBFT with compilation, offloading or non-reentrant checkpointing.

    Strided mode uses flex attention, which compiles itself and carries a block mask. Compiling the whole model changes
    the mask's metadata when a checkpointed layer is recomputed, so Axolotl stops. Without checkpointing the model
    recompiles at every new length. With flex attention, checkpointing must be reentrant (Axolotl sets this itself), and
    Axolotl refuses `activation_offloading: true`.
    """
    if run.objective.rl != "ebft" or run.config.get("ebft.mode") != "strided":
        return
    if run.config.get("torch_compile") is True:
        stops = run.savings.gradient_checkpointing
        why = "would end in a CheckpointError: Axolotl refuses it" if stops else "recompiles at every new length"
        yield Hit(
            severity=Severity.ERROR if stops else Severity.WARNING,
            key="torch_compile",
            message=f"torch_compile in strided EBFT {'with gradient_checkpointing ' if stops else ''}{why}",
            fix=unsafe("Remove torch_compile: flex attention compiles itself", delete_key("torch_compile")),
        )
    if run.kernels.attn_implementation == "flex_attention":
        yield from _flex(run)


def _flex(run: RunSpec) -> Iterator[Hit]:
    if run.savings.gradient_checkpointing and not run.config.get(_REENTRANT):
        refused = run.config.get(_REENTRANT) is False
        yield Hit(
            severity=Severity.WARNING if refused else Severity.INFO,
            key=_REENTRANT,
            message="strided EBFT on flex_attention needs reentrant checkpointing: Axolotl sets use_reentrant itself",
            fix=safe("Set use_reentrant: true, as Axolotl does", choose_reentrant(run, True)),
        )
    if run.config.get("activation_offloading") is True:
        yield Hit(
            key="activation_offloading",
            message="Axolotl refuses activation_offloading: true in strided EBFT on flex_attention",
            fix=unsafe("Remove activation_offloading", delete_key("activation_offloading")),
        )
