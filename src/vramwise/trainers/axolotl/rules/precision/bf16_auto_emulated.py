"""bf16-auto-emulated"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="bf16-auto-emulated",
    severity=Severity.INFO,
    topic="precision",
    needs={"gpu"},
    options="--gpu t4",
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nbf16: auto\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nbf16: false\nfp16: true\n",
    beyond_trainer="Axolotl asks torch, and torch's test counts emulated bf16 as support.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`bf16: auto` on a card without bf16 may settle on emulated bf16.

    `auto` is meant to fall back to fp16 on cards older than Ampere. Axolotl decides by torch's `is_bf16_supported()`,
    which also answers yes where bf16 is only emulated: a T4 or V100 can end up in bf16 and crawl, with no word about
    it.

    With an adapter, write `fp16: true` and `bf16: false` to be sure. A full fine-tune has no good 16-bit choice on such
    a card: fp16 weights fail under the gradient scaler (see `fp16-full-finetune`).
    """
    gpu = run.target.gpu
    written = run.config.get("bf16", "auto" if "bf16" not in run.config else False)
    if (
        gpu is None
        or gpu.bf16
        or not run.base_model
        or written != "auto"
        or run.config.get("fp16")
        or run.config.get("fp8")
    ):
        return
    message = (
        f"bf16: auto on {gpu.name} is meant to become fp16, but torch's test counts emulated bf16 as support: Axolotl "
        "may take that and crawl"
    )
    fix = None
    if run.adapter.kind:
        beside = "bf16" if "bf16" in run.config else "adapter"
        edits = (insert_key("bf16", False, beside=beside), insert_key("fp16", True, beside="bf16"))
        fix = unsafe("Choose fp16 outright", *edits)
    yield Hit(key="bf16", near=("base_model",), message=message, fix=fix)
