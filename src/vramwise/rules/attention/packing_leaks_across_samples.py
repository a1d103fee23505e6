"""packing-leaks-across-samples"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, as_written, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="packing-leaks-across-samples",
    severity=Severity.WARNING,
    topic="attention",
    bad="sequence_len: 4096\nsample_packing: true\n",
    good="sequence_len: 4096\nsample_packing: true\nattn_implementation: flash_attention_2\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Packed samples attend to each other.

    Packing puts several samples into one row. A backend that knows where samples begin (flash_attention_2 and 3, flex,
    xformers, sage) separates them. So do `sdpa` and `eager` when set explicitly: the trainer then drops the attention
    mask, and the boundaries come from the position ids. If no backend is set, the model still runs with sdpa, but with
    the plain mask: every sample attends to the ones before it in its row.

    Nothing fails, but the model learns from unrelated context. Set a backend; this changes what is trained.
    """
    if not run.shapes.sample_packing or run.shapes.samples_apart:
        return
    field = "attn_implementation"
    backend = as_written(run, field) or f"no {run.keys[field]}"
    packing = run.keys["sample_packing"]
    yield Hit(
        field=field,
        message=f"{packing} with {backend} does not separate samples: each attends to the ones before it",
        change=changes.separate_samples(run),
    )
