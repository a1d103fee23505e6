"""lora-4bit-not-qlora"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

# the oldest version whose kernels are known
_KERNELS_ADD = (0, 18)


@rule(
    id="lora-4bit-not-qlora",
    severity=Severity.ERROR,
    still_runs=True,
    topic="method",
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nload_in_4bit: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\n",
    beyond_trainer="Axolotl accepts it, quantises nothing and upcasts every base linear to fp32 (verified in a run).",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`adapter: lora` with `load_in_4bit` quantises nothing and loads the base in fp32.

    Axolotl builds a 4-bit configuration only for `adapter: qlora`. With `adapter: lora` the weights are loaded
    unquantised and then prepared as if they were quantised, which upcasts every base linear to fp32: 4 bytes per
    parameter instead of about 0.5, eight times as much as intended. Under ZeRO 3, under FSDP with
    cpu_ram_efficient_loading and with LoftQ that preparation is skipped, and the base stays in 16 bit: four times as
    much as intended.

    With LoRA kernels, which Axolotl turns on by default, such a run fails in its first backward pass. The kernels add
    products of bf16 gradients and fp32 weights in place (`self and mat2 must have the same dtype`). This was observed
    on 0.19, and the same line is in 0.18, 0.20 and 0.21.

    Use `adapter: qlora`. A checkpoint that is already quantised (bnb-4bit) and `quantize_moe_experts` are not affected.
    """
    if run.adapter.kind != "lora" or run.config.get("load_in_4bit") is not True or _quantised_otherwise(run):
        return
    cost = (
        "upcasts the base to fp32, 4 bytes"
        if run.precision.weights_dtype == "fp32"
        else "keeps the base in 16 bit, 2 bytes"
    )
    stops = (
        run.adapter.lora_kernels
        and run.precision.weights_dtype == "fp32"
        and run.target.stack.parts("axolotl") >= _KERNELS_ADD
    )
    ends = ", and its LoRA kernels fail in the first backward (self and mat2 must have the same dtype)" if stops else ""
    yield Hit(
        key="adapter",
        message=(
            f"adapter: lora with load_in_4bit: true quantises nothing: Axolotl {cost} per parameter instead of "
            f"about 0.5{ends}"
        ),
        change=changes.quantize_base(run),
    )


def _quantised_otherwise(run: RunSpec) -> bool:
    """The checkpoint is itself quantised, or its experts are."""
    prequantised = "bnb-4bit" in str(run.base_model).lower()
    return prequantised or run.loading.quantization is not None or bool(run.config.get("quantize_moe_experts"))
