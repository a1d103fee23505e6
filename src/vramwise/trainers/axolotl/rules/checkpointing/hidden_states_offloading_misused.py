"""hidden-states-offloading-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="hidden-states-offloading-misused",
    severity=Severity.ERROR,
    topic="checkpointing",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nunfrozen_parameters:\n  - lm_head\ngradient_checkpointing: true\n"
        "gradient_checkpointing_kwargs:\n  use_reentrant: true\nactivation_offloading: hidden_states\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nunfrozen_parameters:\n  - lm_head\ngradient_checkpointing: true\n"
        "gradient_checkpointing_kwargs:\n  use_reentrant: false\nactivation_offloading: hidden_states\n"
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`activation_offloading: hidden_states` where it fails.

    It checkpoints every layer and offloads the layers' inputs. In its reentrant form it cannot train a partly frozen
    model (`unfrozen_parameters`): Axolotl stops. (With an adapter Axolotl warns that `true` may be faster, because it
    skips recomputation: it does not, see `offloading-of-recomputed`.)
    """
    if run.savings.activation_offloading != "hidden_states":
        return
    reentrant = "gradient_checkpointing_kwargs.use_reentrant"
    if run.config.get(reentrant) and run.config.get("unfrozen_parameters"):
        yield Hit(
            key=reentrant,
            message="use_reentrant: true with unfrozen_parameters and offloading of hidden_states: Axolotl stops",
            change=changes.nonreentrant_checkpointing(run),
        )
