"""lora-kernels-unknown-attention"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, safe, set_key
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.resolve.lora_kernels import attention_unknown, model_refused
from vramwise.types import Edit, RunSpec, Severity

_ATTENTION_KERNELS = ("lora_qkv_kernel", "lora_o_kernel")
_KERNELS = ("lora_mlp_kernel", *_ATTENTION_KERNELS)


@rule(
    id="lora-kernels-unknown-attention",
    severity=Severity.ERROR,
    topic="method",
    bad="base_model: microsoft/Phi-3-mini-4k-instruct\nadapter: lora\nlora_r: 16\nlora_target_linear: true\n",
    good=(
        "base_model: microsoft/Phi-3-mini-4k-instruct\nadapter: lora\nlora_r: 16\nlora_target_linear: true\n"
        "lora_mlp_kernel: false\nlora_qkv_kernel: false\nlora_o_kernel: false\n"
    ),
    beyond_trainer="Axolotl accepts the file, switches the kernels on by itself, and stops while it loads the model.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Fused LoRA kernels go on for a model whose attention they cannot rewrite.

    With `adapter: lora` or `qlora` and no `lora_*_kernel` written, Axolotl switches the fused kernels on. Those of
    attention rewrite the source text of the model's attention, and know two ways of writing it. Phi and Phi-3, OLMo,
    Command R, GLM-4.5, StableLM, Falcon, GPT-2, GPT-NeoX, Llama 4, DeepSeek, LFM2 and Qwen2-VL write it in another one
    (one matrix for q, k and v, a norm in between, another name), so Axolotl stops while it loads the model.

    Up to 0.20 a reward model is stopped too: the kernels take adapters of language models only (seen with 0.19).

    Write the kernels as false: the result is the same, a little slower and with some more activations. One key that is
    written turns the others' default off. Judged where the model is known.
    """
    if model_refused(run):
        why = "take language models only, and a reward model is none"
        yield from _stops(run, _KERNELS, why, " (Model must be a PeftModelForCausalLM)")
    elif attention_unknown(run):
        yield from _stops(run, _ATTENTION_KERNELS, f"cannot rewrite the attention of {run.model_type} models")


def _stops(run: RunSpec, kernels: tuple[str, ...], why: str, shown: str = "") -> Iterator[Hit]:
    """Those of the kernels that are on stop the run."""
    on = [kernel for kernel in kernels if kernel.split("_")[1] in run.adapter.fused_lora]
    if not on:
        return
    written = [kernel for kernel in on if run.config.get(kernel)]
    by_itself = "" if written else ", which Axolotl switches on by itself,"
    yield Hit(
        key=written[0] if written else "adapter",
        message=f"{' and '.join(on)}{by_itself} {why}: Axolotl stops while it loads the model{shown}",
        fix=safe("Leave the kernels off", *_off(run, written)),
    )


def _off(run: RunSpec, written: list[str]) -> Iterator[Edit]:
    if written:
        yield from (set_key(kernel, False) for kernel in written)
        return
    for kernel in ("lora_o_kernel", "lora_qkv_kernel", "lora_mlp_kernel"):
        yield insert_key(kernel, False, beside="adapter")
