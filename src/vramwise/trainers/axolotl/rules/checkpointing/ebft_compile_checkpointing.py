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

    Strided mode runs flex attention, which compiles itself and carries a block mask. Compiling the whole model makes
    the mask's metadata differ when a checkpointed layer is recomputed, and Axolotl stops; without checkpointing it
    recompiles at every new length. Under flex attention the checkpointing has to be reentrant (Axolotl changes it by
    itself) and `activation_offloading: true` is refused.
    """
    if run.objective.rl != "ebft" or run.config.get("ebft.mode") != "strided":
        return
    if run.config.get("torch_compile") is True:
        stops = run.savings.gradient_checkpointing
        why = "ends in a CheckpointError, Axolotl stops" if stops else "recompiles at every new length"
        yield Hit(
            severity=Severity.ERROR if stops else Severity.WARNING,
            key="torch_compile",
            message=f"torch_compile in strided EBFT {'with gradient_checkpointing ' if stops else ''}{why}",
            fix=unsafe("Leave compiling to flex attention: remove torch_compile", delete_key("torch_compile")),
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
            fix=safe("Write what happens: use_reentrant true", choose_reentrant(run, True)),
        )
    if run.config.get("activation_offloading") is True:
        yield Hit(
            key="activation_offloading",
            message="activation_offloading: true does not go with strided EBFT on flex_attention: Axolotl stops",
            fix=unsafe("Remove activation_offloading", delete_key("activation_offloading")),
        )
