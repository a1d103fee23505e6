"""chunked-loss-holds-logits"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.rules.room import fits_with_a_margin
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="chunked-loss-holds-logits",
    explains={"logits"},
    severity=Severity.INFO,
    topic="loss",
    bad="base_model: meta-llama/Llama-3.2-1B\nsequence_len: 4096\nmicro_batch_size: 2\nchunked_cross_entropy: true\n",
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 4096\nmicro_batch_size: 2\n"
        "plugins:\n  - axolotl.integrations.liger.LigerPlugin\nliger_fused_linear_cross_entropy: true\n"
    ),
    beyond_trainer="It saves less than its name suggests: only the fp32 copy of the logits is made in chunks.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Chunked cross entropy still holds the full logits.

    The model computes the logits of all tokens, tokens × vocabulary in the compute dtype, and their gradient in
    backward. Chunking splits only the fp32 copy that the loss is computed from, in 8 parts by default. Cut cross
    entropy and Liger's fused linear cross entropy never hold the logits at all.

    If the run is predicted to fit with 5 % of the card to spare, this is reported only with `--pedantic`.
    """
    if run.kernels.loss_kernel != "chunked":
        return
    micro, length = run.batch.micro_batch_size, run.shapes.sequence_len
    width = 4 if run.precision.compute == "fp32" else 2
    yield Hit(
        field="loss_kernel",
        pedantic=fits_with_a_margin(memory),
        message=(
            f"{run.keys['loss_kernel']} splits only the fp32 copy into {run.kernels.loss_chunks} chunks: the full "
            f"logits ({micro} × {length} = {micro * length} tokens × vocabulary × {width} bytes) are still held"
        ),
    )
