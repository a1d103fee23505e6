"""fp32-weights"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="fp32-weights",
    severity=Severity.WARNING,
    topic="precision",
    bad="base_model: meta-llama/Llama-3.2-1B\nbf16: false\nfp16: false\n",
    good="base_model: meta-llama/Llama-3.2-1B\nbf16: auto\n",
    beyond_trainer="Axolotl loads the model in fp32 and mentions bf16 only on a card that has it.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Neither bf16 nor fp16 is on, so everything is in fp32.

    Weights, activations and, in a full fine-tune, gradients and optimizer states take 4 bytes a number instead of 2:
    twice the memory everywhere, and matrix products without 16-bit tensor cores. `bf16: auto` is Axolotl's default; a
    written `false` or an empty `bf16:` switches it off.

    Write `bf16: auto`. Keep fp32 only where it is wanted, for example to rule out precision as the cause of a bad loss.
    """
    if run.precision != "fp32" or run.weights_dtype != "fp32":
        return
    off = "bf16" in run.config and not run.config.get("bf16")
    if run.adapter == "lora" and run.config.get("load_in_4bit"):
        return  # lora-4bit-not-qlora says why the base is fp32
    if run.quantization:
        fact = "neither bf16 nor fp16 is on: everything but the quantised base is stored and computed in fp32"
    else:
        fact = "neither bf16 nor fp16 is on: everything is in fp32, 4 bytes a parameter instead of 2"
    yield Hit(
        key="bf16",
        near=("fp16", "base_model"),
        message=f"{fact}, activations too",
        fix=unsafe("Let the card decide: bf16 auto", set_key("bf16", "auto")) if off else None,
    )
