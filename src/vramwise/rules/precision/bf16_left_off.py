"""bf16-left-off"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="bf16-left-off",
    explains={"fp16-scaler-bf16-weights", "fp16-overflow"},
    severity=Severity.INFO,
    topic="precision",
    needs={"gpu"},
    options="--gpu rtx-4090",
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nfp16: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nbf16: auto\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The card supports bf16, but the run uses fp16.

    fp16 and bf16 take the same memory and run at the same speed. fp16 reaches only to 65504, so it needs loss scaling,
    skips steps that overflow and can diverge on models that were trained in bf16; bf16 has the range of fp32 and needs
    none of that. Keep fp16 only for a model that was made in fp16, or for a file that must also work on older cards
    with a trainer that cannot choose by card.
    """
    gpu = run.target.gpu
    if gpu is None or not gpu.bf16 or run.precision.compute != "fp16":
        return
    yield Hit(
        field="precision",
        message=(
            f"{gpu.name} supports bf16, but the run uses fp16: same memory, but a smaller range, loss scaling and "
            "skipped steps"
        ),
        change=changes.train_in_bf16(run),
    )
