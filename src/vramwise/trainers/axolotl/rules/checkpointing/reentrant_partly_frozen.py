"""reentrant-partly-frozen"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

_KEY = "gradient_checkpointing_kwargs.use_reentrant"


@rule(
    id="reentrant-partly-frozen",
    severity=Severity.ERROR,
    topic="checkpointing",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\ngradient_checkpointing: true\n"
        "gradient_checkpointing_kwargs:\n  use_reentrant: true\nunfrozen_parameters:\n  - lm_head\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\ngradient_checkpointing: true\n"
        "gradient_checkpointing_kwargs:\n  use_reentrant: false\nunfrozen_parameters:\n  - lm_head\n"
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Reentrant checkpointing of a partly frozen model.

    Reentrant checkpointing gives gradients only where an input of the layer needs them; in a model of which some
    parameters are frozen, trained ones would get none. Axolotl stops when `unfrozen_parameters` meets `use_reentrant:
    true`. The non-reentrant form has no such limit and gives the same result.
    """
    if run.config.get("unfrozen_parameters") and run.config.get(_KEY) is True:
        yield Hit(
            key=_KEY,
            message="use_reentrant: true with unfrozen_parameters: trained layers may get no gradient, Axolotl stops",
            change=changes.nonreentrant_checkpointing(run),
        )
