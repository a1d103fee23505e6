"""fp32-weights"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="fp32-weights",
    severity=Severity.WARNING,
    topic="precision",
    bad="base_model: meta-llama/Llama-3.2-1B\nbf16: false\nfp16: false\n",
    good="base_model: meta-llama/Llama-3.2-1B\nbf16: auto\n",
    beyond_trainer="The trainer loads the model in fp32 and mentions bf16 only on a card that supports it.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Neither bf16 nor fp16 is on, so everything is in fp32.

    Weights, activations and, in a full fine-tune, gradients and optimizer states take 4 bytes per number instead of 2:
    twice the memory everywhere, and matrix products without 16-bit tensor cores. If bf16 is a trainer's default,
    `bf16: false` switches it off.

    Train in bf16, or in fp16 on a card without it. Keep fp32 only on purpose, for example to rule out precision as the
    cause of a bad loss.
    """
    wide = run.precision.weights_dtype == "fp32" or (run.loading.trains_in_fp32 and run.adapter.kind is None)
    if run.precision.compute != "fp32" or not wide:
        return
    if run.origins["weights_dtype"].key is not None:
        return  # another key than the precision made them fp32, which has its own rule
    if run.loading.quantization:
        fact = "neither bf16 nor fp16 is on: everything but the quantised base is stored and computed in fp32"
    else:
        fact = "neither bf16 nor fp16 is on: everything is in fp32, 4 bytes per parameter instead of 2"
    yield Hit(
        field="precision",
        message=f"{fact}, activations too",
        change=changes.let_card_choose(run),
    )
