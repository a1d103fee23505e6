"""Where Axolotl's fused LoRA kernels work: they rewrite the source of a model's attention and know two forms of it."""

from __future__ import annotations

from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec

# The kernels that belong together; the embeddings' kernel is installed with them.
LINEAR_KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
KERNELS = (*LINEAR_KERNELS, "lora_embedding_kernel")
# Architectures of transformers whose attention the kernels cannot rewrite: their forward contains none of the texts
# that axolotl/monkeypatch/lora_kernels.py replaces, or there is no class with the expected name. Determined with
# Axolotl 0.19 (transformers 5.16) and 0.21 (5.20), which agree; the texts are the same in 0.18 and 0.20.
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


def attention_unknown(run: RunSpec) -> bool:
    """Return whether the kernels cannot rewrite the model's attention; False if model or release was not looked at."""
    return run.model_type in _UNKNOWN and schema_of(run).since("0.18.0")


def model_refused(run: RunSpec) -> bool:
    """Return whether the kernels refuse the model: up to 0.20 they accept only language models, not reward models."""
    return run.objective.kind == "reward" and not schema_of(run).since("0.21.0")


def kernels_work(run: RunSpec) -> bool:
    """Return whether the kernels can be used; otherwise Axolotl refuses them, or fails while loading the model."""
    readable = not (run.adapter.kind == "lora" and run.config.get("load_in_8bit"))
    own_code = run.config.get("trust_remote_code") or run.config.get("nvfp4_merge_aware")
    known = not attention_unknown(run) and not model_refused(run)
    return readable and known and not own_code and run.sharding.kind != "fsdp1" and not version_unseen(run)


def version_unseen(run: RunSpec) -> bool:
    """Return whether Axolotl takes FSDP 2 for FSDP 1.

    Up to 0.19 it checks the kernels before it reads FSDP's version from fsdp_config.
    """
    if schema_of(run).since("0.20.0"):
        return False  # there is no other version
    return run.batch.gpus > 1 and run.sharding.kind == "fsdp2" and not run.config.document.values.get("fsdp_version")
