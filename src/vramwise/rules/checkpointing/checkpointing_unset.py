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
    beyond_trainer="It is easy to assume the opposite default: most examples set the key.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Gradient checkpointing is off because it is not set.

    Without it, every layer keeps its activations until the backward pass; they grow with micro-batch × length ×
    layers. With `gradient_checkpointing: true`, a layer keeps only its input and recomputes the rest in the backward
    pass: same result, less memory, about one more forward pass of time. Set `gradient_checkpointing: false` if you
    want it off.
    """
    field = "gradient_checkpointing"
    origin = run.origins[field]
    written = origin.kind != "default" or origin.place is not None
    change = changes.checkpoint_activations(run)
    if written or change is None:
        return
    micro, length = run.batch.micro_batch_size, run.shapes.sequence_len
    yield Hit(
        field=field,
        message=(
            f"gradient checkpointing is off (not set): every layer keeps activations for {micro} × {length} = "
            f"{micro * length} tokens until backward"
        ),
        change=change,
        by_request=True,
    )
