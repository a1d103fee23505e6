"""quantize-moe-experts-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_KEY = "quantize_moe_experts"


@rule(
    id="quantize-moe-experts-misused",
    severity=Severity.ERROR,
    topic="method",
    bad=(
        "adapter: qlora\nload_in_4bit: true\nquantize_moe_experts: true\n"
        "lora_target_linear: true\nlora_target_modules: [q_proj, v_proj]\n"
    ),
    good="adapter: qlora\nload_in_4bit: true\nquantize_moe_experts: true\nlora_target_modules: [q_proj, v_proj]\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`quantize_moe_experts` without what it needs.

    transformers holds experts as one 3-D parameter that bitsandbytes passes over, so a "4-bit" mixture of experts stays
    mostly in 16 bit; `quantize_moe_experts` quantises those weights while they load. Axolotl refuses it without a
    `lora` or `qlora` adapter, without `load_in_4bit` or `load_in_8bit`, with `lora_target_linear` (experts are no
    linears: use `lora_target_parameters`), and on anything but CUDA.
    """
    if not run.config.get(_KEY):
        return
    if run.config.get("lora_target_linear"):
        # Without other targets, nothing would be left to train.
        others = run.config.get("lora_target_modules") or run.config.get("lora_target_parameters")
        fix = unsafe("Keep the targets named", set_key("lora_target_linear", False)) if others else None
        message = (
            f"{_KEY} with lora_target_linear: experts are no linears, Axolotl refuses the file; name the targets "
            "instead"
        )
        yield Hit(key="lora_target_linear", message=message, fix=fix)
    if run.adapter.kind not in ("lora", "qlora"):
        message = (
            f"{_KEY} with adapter {run.adapter.kind or 'unset'}: quantised experts need adapter lora or qlora, Axolotl "
            "refuses the file"
        )
        yield Hit(key=_KEY, near=("adapter",), message=message)
    if not (run.config.get("load_in_4bit") or run.config.get("load_in_8bit")):
        message = f"{_KEY} without load_in_4bit or load_in_8bit: Axolotl refuses the file"
        yield Hit(key=_KEY, message=message)
    gpu = run.target.gpu
    if gpu is not None and gpu.vendor == "amd":
        yield Hit(
            key=_KEY, message=f"{_KEY} works on CUDA only, and the target is {gpu.name}: Axolotl refuses the file"
        )
