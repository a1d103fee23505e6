"""What Unsloth refuses before anything is trained: precision flags and types that do not go together."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.trainers.refusals import Refusal
from vramwise.types import RunSpec

_WIDTHS = ("load_in_4bit", "load_in_8bit", "load_in_16bit", "load_in_fp8")


def refusals(run: RunSpec) -> Iterator[Refusal]:
    """Every refusal that the training meets."""
    written = [key for key in _WIDTHS if run.config.get(key)]
    if len(written) > 1 and not run.config.get("full_finetuning"):
        yield written[1], f"{' and '.join(written)} are all on: at most one width can be"
    bf16, fp16 = run.config.get("bf16") is True, run.config.get("fp16") is True
    full = run.config.get("full_finetuning")
    if fp16 and not bf16 and run.precision.weights_dtype == "bf16" and not full:
        yield "fp16", "fp16 is on, and the weights are in bfloat16: Unsloth stops. Set bf16 instead"
    if bf16 and run.precision.weights_dtype == "fp16" and not full:
        yield "bf16", "bf16 is on, and the weights are in float16: Unsloth stops. Set fp16 instead"
    if run.config.get("qat_scheme") and full and run.adapter.kind is not None:
        yield "qat_scheme", "qat_scheme in from_pretrained is for full_finetuning; give it to get_peft_model for LoRA"
