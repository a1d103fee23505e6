"""better-transformer-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_KEY = "flash_optimum"


@rule(
    id="better-transformer-misused",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="attention",
    bad="base_model: meta-llama/Llama-3.2-1B\nflash_optimum: true\nbf16: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nflash_optimum: true\nbf16: false\nbfloat16: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """BetterTransformer (`flash_optimum`) with mixed precision, an adapter or fp32 weights.

    BetterTransformer replaces the model's attention with a fast path that has no mixed precision: Axolotl refuses it
    with `bf16` or `fp16` on, and `bf16` is on by default (`auto`). In fp32 it has no fast kernel to use, and it swaps
    out the modules that an adapter is attached to.

    transformers' own attention is as fast today: remove `flash_optimum`, or write `bf16: false` with `bfloat16: true`.
    """
    if run.config.get(_KEY) is not True:
        return
    fix = unsafe("Use transformers' own attention", delete_key(_KEY))
    bf16 = run.config.get("bf16", "auto" if "bf16" not in run.config else False)
    mixed = [
        f"{key}: {str(value).lower()}" for key, value in (("bf16", bf16), ("fp16", run.config.get("fp16"))) if value
    ]
    if mixed:
        default = "" if run.config.get("bf16") or not bf16 else " (the default)"
        message = (
            f"{_KEY} with {', '.join(mixed)}{default}: BetterTransformer has no mixed precision, Axolotl refuses the "
            "file"
        )
        yield Hit(key=_KEY, message=message, fix=fix)
    if run.adapter.kind:
        message = (
            f"{_KEY} with adapter: {run.adapter.kind}: BetterTransformer swaps out the modules the adapter is "
            "attached to"
        )
        yield Hit(key=_KEY, message=message, fix=fix, severity=Severity.WARNING)
    if run.config.get("float16") is not True and run.config.get("bfloat16") is not True:
        message = f"{_KEY} without bfloat16 or float16: in fp32 BetterTransformer has no fast kernel to use"
        yield Hit(key=_KEY, message=message, fix=fix, severity=Severity.WARNING)
