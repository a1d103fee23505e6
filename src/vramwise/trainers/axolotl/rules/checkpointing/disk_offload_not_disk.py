"""disk-offload-not-disk"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, safe, set_key
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="disk-offload-not-disk",
    severity=Severity.WARNING,
    topic="checkpointing",
    bad="base_model: meta-llama/Llama-3.2-1B\ngradient_checkpointing: true\nactivation_offloading: disk\n",
    good="base_model: meta-llama/Llama-3.2-1B\ngradient_checkpointing: true\nactivation_offloading: true\n",
    beyond_trainer="Axolotl's disk offloader hangs on a value that its schema refuses; `disk` runs the CPU streamer.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`activation_offloading: disk` offloads to host memory, not to disk.

    Axolotl has a disk offloader, but turns it on for the value `offload_disk` of `activation_offloading`, which its
    schema does not accept. `disk`, and the old `gradient_checkpointing: offload_disk` that is translated to it, run
    the same streaming offloader to pinned host memory as `true`. A machine that was sized for disk runs out of RAM
    instead.
    """
    if run.config.get("gradient_checkpointing") == "offload_disk":
        edits = (
            set_key("gradient_checkpointing", True),
            insert_key("activation_offloading", True, beside="gradient_checkpointing"),
        )
        yield Hit(
            key="gradient_checkpointing",
            message="gradient_checkpointing: offload_disk writes nothing to disk: activations go to host memory",
            fix=safe("Say what happens: activation_offloading true", *edits),
        )
    elif run.config.get("activation_offloading") == "disk":
        yield Hit(
            key="activation_offloading",
            message="activation_offloading: disk writes nothing to disk: activations go to host memory, as with true",
            fix=safe("Say what happens: activation_offloading true", set_key("activation_offloading", True)),
        )
