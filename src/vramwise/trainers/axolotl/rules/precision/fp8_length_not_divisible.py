"""fp8-length-not-divisible"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import Fix, RunSpec, Severity


@rule(
    id="fp8-length-not-divisible",
    explains={"fp8-alignment"},
    severity=Severity.WARNING,
    topic="precision",
    bad="fp8: true\ntorch_compile: true\nmicro_batch_size: 1\nsequence_len: 2048\npad_to_sequence_len: false\n",
    good="fp8: true\ntorch_compile: true\nmicro_batch_size: 1\nsequence_len: 2048\npad_to_sequence_len: true\n",
    beyond_trainer="Axolotl does not check lengths; torch's fp8 product needs dimensions divisible by 16.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """fp8 with batches whose token count is not divisible by 16.

    The gradient of a weight is a matrix product summed over all tokens of the micro-batch, and torch's fp8 product
    needs dimensions divisible by 16 (by 32 in the mxfp8 formats). A micro-batch has rows × width tokens, and padding
    decides the width. The run stops at the first batch whose token count is not divisible.

    Axolotl's own padding, to sequence_len or to multiples of 64, always works. `pad_to_sequence_len: false` or an odd
    `pad_to_multiple_of` does not. The recipe `rowwise_with_gw_hp` computes that gradient in bf16 and is not affected.
    """
    recipe = str(run.config.get("fp8_config.recipe", "tensorwise"))
    if run.precision.compute != "fp8" or recipe == "rowwise_with_gw_hp":
        return
    divisor = 32 if recipe.startswith("mxfp8") else 16
    rows = 1 if run.shapes.packing_rows == "one" else run.batch.micro_batch_size
    if rows * run.shapes.pad_multiple % divisor == 0:
        return
    widths = f"multiples of {run.shapes.pad_multiple}" if run.shapes.pad_multiple > 1 else "any length"
    yield Hit(
        key="pad_to_sequence_len" if run.shapes.pad_multiple == 1 else "pad_to_multiple_of",
        message=(
            f"fp8 needs token counts divisible by {divisor}, but a micro-batch is {rows} "
            f"{'row' if rows == 1 else 'rows'} of {widths}: the first batch that is not divisible stops the run"
        ),
        fix=_fix(run),
    )


def _fix(run: RunSpec) -> Fix | None:
    edits = []
    if run.config.get("pad_to_sequence_len") is False:
        edits.append(set_key("pad_to_sequence_len", True))
    if run.config.get("pad_to_multiple_of"):
        edits.append(set_key("pad_to_multiple_of", 64))
    return unsafe("Pad to divisible widths", *edits) if edits else None
