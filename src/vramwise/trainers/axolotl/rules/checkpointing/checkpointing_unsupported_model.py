"""checkpointing-unsupported-model"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="checkpointing-unsupported-model",
    severity=Severity.ERROR,
    topic="checkpointing",
    bad="base_model: mosaicml/mpt-7b\ngradient_checkpointing: true\n",
    good="base_model: mosaicml/mpt-7b\ngradient_checkpointing: false\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Gradient checkpointing for an MPT model.

    MPT's model code does not support it and Axolotl stops, going by `mpt` in the name of the base model. Without
    checkpointing activations take more memory: lower the micro-batch or the length.
    """
    if run.savings.gradient_checkpointing and "mpt" in (run.base_model or "").lower():
        yield Hit(
            key="gradient_checkpointing",
            message=f"gradient_checkpointing with {run.base_model}: MPT models do not support it, Axolotl stops",
            fix=unsafe("Turn it off (activations then need more memory)", set_key("gradient_checkpointing", False)),
        )
