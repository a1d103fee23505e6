"""offloading-without-checkpointing"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="offloading-without-checkpointing",
    severity=Severity.ERROR,
    topic="checkpointing",
    bad="adapter: lora\nactivation_offloading: true\n",
    good="adapter: lora\nactivation_offloading: true\ngradient_checkpointing: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`activation_offloading` is on and `gradient_checkpointing` is off.

    Axolotl ties the two together and stops. With an adapter the offloader then replaces recomputation; in a full
    fine-tune it moves what checkpointing keeps. Turning checkpointing on gives the same training result.
    """
    written = run.config.get("activation_offloading")
    if not written or run.savings.gradient_checkpointing:
        return
    value = str(written).lower()
    yield Hit(
        key="activation_offloading",
        message=f"activation_offloading: {value} while gradient_checkpointing is off: Axolotl stops, it needs both",
        change=changes.turn_checkpointing_on(run),
    )
