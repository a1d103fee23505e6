"""packing-sdpa-bf16"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

_HOPPER = (9, 0)


@rule(
    id="packing-sdpa-bf16",
    severity=Severity.WARNING,
    topic="attention",
    bad="sample_packing: true\nattn_implementation: sdpa\nbf16: true\n",
    good="sample_packing: true\nattn_implementation: flash_attention_2\nbf16: true\n",
    options="--gpu a100-80gb",
    needs={"gpu"},
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Packed rows with sdpa in bf16 on a card older than Hopper: the loss may be 0.0.

    Before Hopper (compute capability 9.0) torch's sdpa is not tested in bf16 with the masks that packed rows need, and
    the trainer warns that the loss can be 0.0: the run continues and learns nothing. Hopper and newer cards are
    not affected.

    Use flash_attention_2 on Ampere and Ada cards, or watch the first losses closely.
    """
    capability = run.target.gpu.capability if run.target.gpu else None
    if capability is None or capability >= _HOPPER:
        return
    named_sdpa = run.kernels.attn_implementation == "sdpa" and run.origins["attn_implementation"].kind != "default"
    if not (run.shapes.sample_packing and named_sdpa and run.precision.compute == "bf16"):
        return
    if run.model_type in run.kernels.fused_layers:  # a trainer's own layers, whose kernel needs no mask
        return
    yield Hit(
        field="attn_implementation",
        message=(
            f"{run.keys['sample_packing']} under sdpa in bf16 on sm_{capability[0]}{capability[1]}: torch does not "
            "test this below sm_90, and the loss may be 0.0"
        ),
        change=changes.flash_attention(run),
    )
