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
    beyond_trainer="Axolotl accepts the file, turns the kernels on by default, and stops while it loads the model.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Fused LoRA kernels are on for a model whose attention they do not support.

    With `adapter: lora` or `qlora` and no `lora_*_kernel` set, Axolotl turns the fused kernels on. The attention
    kernels rewrite the source text of the model's attention, and recognise only two forms of it. Phi and Phi-3, OLMo,
    Command R, GLM-4.5, StableLM, Falcon, GPT-2, GPT-NeoX, Llama 4, DeepSeek, LFM2 and Qwen2-VL use other forms (one
    matrix for q, k and v, a norm in between, another name), so Axolotl stops while it loads the model.

    Up to 0.20 the kernels also stop a reward model: they support only adapters of language models (observed with 0.19).

    Set the kernels to false: the result is the same, a little slower and with somewhat more memory for activations.
    Setting one key turns the default off for the others too. The rule applies only to known models.
    """
    if model_refused(run):
        why = "support language models, not reward models"
        yield from _stops(run, _KERNELS, why, " (Model must be a PeftModelForCausalLM)")
    elif attention_unknown(run):
        yield from _stops(run, _ATTENTION_KERNELS, f"do not support the attention of {run.model_type} models")


def _stops(run: RunSpec, kernels: tuple[str, ...], why: str, shown: str = "") -> Iterator[Hit]:
    """Report the kernels that are on: they stop the run."""
    on = [kernel for kernel in kernels if kernel.split("_")[1] in run.adapter.fused_lora]
    if not on:
        return
    written = [kernel for kernel in on if run.config.get(kernel)]
    by_itself = "" if written else ", which Axolotl turns on by default,"
    yield Hit(
        key=written[0] if written else "adapter",
        message=f"{' and '.join(on)}{by_itself} {why}: Axolotl stops while it loads the model{shown}",
        fix=safe("Turn the kernels off", *_off(run, written)),
    )


def _off(run: RunSpec, written: list[str]) -> Iterator[Edit]:
    if written:
        yield from (set_key(kernel, False) for kernel in written)
        return
    for kernel in ("lora_o_kernel", "lora_qkv_kernel", "lora_mlp_kernel"):
        yield insert_key(kernel, False, beside="adapter")
