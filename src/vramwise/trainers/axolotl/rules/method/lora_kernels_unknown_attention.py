"""lora-kernels-unknown-attention"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, safe, set_key
from vramwise.timeline import MemoryReport
from vramwise.types import Edit, RunSpec, Severity

_ATTENTION_KERNELS = ("lora_qkv_kernel", "lora_o_kernel")
_TAKE_ANY_MODEL = (0, 21)  # until then language models only
_KERNELS = ("lora_mlp_kernel", *_ATTENTION_KERNELS)
# Architectures of transformers whose attention the kernels cannot rewrite: their forward has none of the texts that
# axolotl/monkeypatch/lora_kernels.py replaces, or no class by the name it looks for. Found by looking, with Axolotl
# 0.19 (transformers 5.16) and 0.21 (5.20), which agree; the texts are the same in 0.18 and 0.20.
_UNKNOWN = frozenset(
    """
    afmoe aria aria_text aya_vision bloom blt chameleon codegen cohere cohere2_vision dbrx deepseek_v2 deepseek_v3
    deepseek_v32 deepseek_v4 deepseek_vl deepseek_vl_hybrid ernie4_5_vl_moe falcon falcon_h1 falcon_mamba flex_olmo
    florence2 fuyu gemma3n gemma3n_text glm46v glm4_moe glm4_moe_lite glm4v glm4v_moe glm_moe_dsa gpt2 gpt_bigcode
    gpt_neo gpt_neox gptj idefics2 idefics3 internvl janus jetmoe kimi_linear lfm2 lfm2_moe lfm2_vl llama4 llama4_text
    llava llava_next llava_onevision longcat_flash mamba mamba2 minicpm3 minimax_m2 mistral4 mllama modernbert-decoder
    mpt olmo olmo2 olmo3 olmo_hybrid olmoe opt ovis2 paligemma perception_lm persimmon phi phi3 phi4_multimodal
    qwen2_5_vl qwen2_vl qwen3_vl_moe rwkv smolvlm stablelm xglm xlstm zamba2
    """.split()  # noqa: SIM905 (a list of words, one a line, would fill two pages)
)


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
    if run.objective == "reward" and run.target.stack.parts("axolotl") < _TAKE_ANY_MODEL:
        why = "take language models only, and a reward model is none"
        yield from _stops(run, _KERNELS, why, " (Model must be a PeftModelForCausalLM)")
    elif run.model_type in _UNKNOWN:
        yield from _stops(run, _ATTENTION_KERNELS, f"cannot rewrite the attention of {run.model_type} models")


def _stops(run: RunSpec, kernels: tuple[str, ...], why: str, shown: str = "") -> Iterator[Hit]:
    """Those of the kernels that are on stop the run."""
    on = [kernel for kernel in kernels if kernel.split("_")[1] in run.fused_lora]
    if not on:
        return
    written = [kernel for kernel in on if run.config.get(kernel)]
    by_itself = "" if written else ", which Axolotl switches on by itself,"
    yield Hit(
        key=written[0] if written else "adapter",
        near=("base_model",),
        message=f"{' and '.join(on)}{by_itself} {why}: Axolotl stops while it loads the model{shown}",
        fix=safe("Leave the kernels off", *_off(run, written)),
    )


def _off(run: RunSpec, written: list[str]) -> Iterator[Edit]:
    if written:
        yield from (set_key(kernel, False) for kernel in written)
        return
    for kernel in ("lora_o_kernel", "lora_qkv_kernel", "lora_mlp_kernel"):
        yield insert_key(kernel, False, beside="adapter")
