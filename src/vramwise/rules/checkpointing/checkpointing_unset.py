"""checkpointing-unset"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="checkpointing-unset",
    severity=Severity.INFO,
    topic="checkpointing",
    bad="base_model: meta-llama/Llama-3.2-1B\nsequence_len: 4096\nmicro_batch_size: 2\n",
    good="base_model: meta-llama/Llama-3.2-1B\nsequence_len: 4096\nmicro_batch_size: 2\ngradient_checkpointing: true\n",
    beyond_trainer="A default that is easily taken for the opposite: most examples write the key.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Gradient checkpointing is not written, so it is off.

    Without it every layer keeps its activations from forward to backward, and they grow with micro-batch × length ×
    layers. With `gradient_checkpointing: true` a layer keeps its input only and recomputes the rest in the backward
    pass: same result, less memory, about one more forward pass of time. Which kind of checkpointing that is without
    `gradient_checkpointing_kwargs` depends on the trainer's version and the method: the message says it. Write
    `gradient_checkpointing: false` if off is what you want.
    """
    field = "gradient_checkpointing"
    origin = run.origins[field]
    written = origin.kind != "default" or origin.place is not None
    change = changes.checkpoint_activations(run)
    if written or change is None:
        return
    micro, length = run.batch.micro_batch_size, run.shapes.sequence_len
    default = "reentrant" if run.savings.checkpointing_reentrant else "non-reentrant"
    yield Hit(
        field=field,
        message=(
            f"{run.keys[field]} is not written, so it is off: every layer keeps its activations until backward, "
            f"of micro {micro} × length {length} = {micro * length} tokens (on would be {default} by default)"
        ),
        change=change,
        by_request=True,
    )
