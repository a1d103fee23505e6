"""sage-without-padding"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, safe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="sage-without-padding",
    severity=Severity.WARNING,
    topic="attention",
    bad="attn_implementation: sage\nadapter: lora\nsequence_len: 2048\n",
    good="attn_implementation: sage\nadapter: lora\nsequence_len: 2048\npad_to_sequence_len: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """SageAttention on rows of changing length.

    SageAttention quantises attention block by block. On unpacked rows that are padded only to the longest of the batch,
    Axolotl's authors have seen the loss explode. Rows padded to `sequence_len`, or packed ones, train normally.
    """
    if run.kernels.attn_implementation != "sage" or run.shapes.sample_packing or run.shapes.pad_to_sequence_len:
        return
    key = run.origins["attn_implementation"].key or "attn_implementation"
    beside = "sequence_len" if "sequence_len" in run.config else key
    yield Hit(
        key=key,
        message="sage attention without sample_packing or pad_to_sequence_len: the loss has been seen to explode",
        fix=safe("Pad every batch to sequence_len", insert_key("pad_to_sequence_len", True, beside=beside)),
    )
