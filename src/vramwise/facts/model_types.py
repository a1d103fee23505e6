"""What a `model_type` means: its family, transformers' defaults for absent fields, what its modelling code settles.

Families, by what differs in a block (everything else is a flag of `ModelSpec`):

| family | block |
|---|---|
| llama | norm → attention → add, norm → MLP → add; separate q, k, v, o |
| gemma | llama, with norms that multiply in fp32 by (1 + weight) and scaled embeddings |
| gemma2, gemma3 | gemma, with norms before and after attention and MLP |
| olmo2 | norms after attention and MLP only; q and k normed over their full width |
| cohere | one LayerNorm without bias feeds attention and MLP in parallel |
| glm, glm4 | llama with a fused gate_up_proj; glm4 also norms the outputs of attention and MLP |
| phi3 | llama with fused qkv_proj and gate_up_proj |
| phi | one LayerNorm feeds attention and a two-matrix MLP in parallel; a head with bias |
| apertus | llama with a two-matrix MLP and a learnable xIELU |
| starcoder2 | llama with LayerNorm, biases and a two-matrix MLP |
| gpt_neox, falcon, gpt2 | fused qkv, LayerNorm, two-matrix MLP, each with its own order and names |
| mixtral, olmoe, qwen2_moe, qwen3_moe, glm4_moe, gpt_oss | llama whose MLP is a mixture of experts |

Source: `configuration_<type>.py` and `modeling_<type>.py` of transformers 5.22.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# Which layers see a sliding window. "all": every one, where the file sets one. "pattern": all but the last of every N.
# Only with use_sliding_window: "enabled" (every layer), "late" (from max_window_layers on), "alternate" (every other
# layer before it).
Window = Literal["none", "all", "late", "enabled", "alternate", "pattern"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelType:
    """One model_type of transformers.

    `defaults`: what transformers takes for a field that the file does not have. `fixed`: ModelSpec fields that the
    modelling code settles. `switches`: ModelSpec flags and the config field that turns each of them on.
    """

    family: str
    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, str] = field(default_factory=dict)
    window: Window = "none"


def _type(
    family: str,
    *,
    sizes: tuple[int, int, int, int | None, int],
    fixed: Mapping[str, Any] | None = None,
    switches: Mapping[str, str] | None = None,
    window: Window = "none",
    **defaults: Any,
) -> ModelType:
    """`sizes`: vocabulary, MLP width, heads, key-value heads, context.

    Hidden size and layers have no default on purpose: a file that lacks those two is no model's config, and taking
    transformers' default for them would hide that.
    """
    names = ("vocab_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "max_position_embeddings")
    every = {"hidden_act": "silu", "tie_word_embeddings": False}
    return ModelType(
        family=family,
        defaults=every | dict(zip(names, sizes, strict=True)) | defaults,
        fixed=fixed or {},
        switches=switches or {},
        window=window,
    )


_ATTENTION = {"qkv_bias": "attention_bias", "attention_out_bias": "attention_bias"}
_ATTENTION_MLP = _ATTENTION | {"mlp_bias": "mlp_bias"}
_QKV = {"qkv_bias": "attention_bias"}
_HEAD_NORM = {"qk_norm": "head"}
_FULL_NORM = {"qk_norm": "full"}
_GELU_TANH = "gelu_pytorch_tanh"
_GEMMA: Mapping[str, Any] = {"hidden_act": _GELU_TANH, "tie_word_embeddings": True, "head_dim": 256}
_ALL_BIASES = {"qkv_bias": True, "attention_out_bias": True, "mlp_bias": True}
_LAYER_NORM_MLP = {"norm": "layer", "gated_mlp": False}

# For a model_type that is not listed here: read as llama, with nothing assumed about sizes.
ASSUMED = ModelType(
    family="llama",
    defaults={"hidden_act": "silu", "tie_word_embeddings": False},
    switches=_ATTENTION_MLP,
    window="none",
)

MODEL_TYPES: dict[str, ModelType] = {
    "llama": _type("llama", sizes=(32000, 11008, 32, None, 2048), switches=_ATTENTION_MLP),
    "mistral": _type("llama", sizes=(32000, 14336, 32, 8, 131072), sliding_window=4096, window="all"),
    "ministral": _type("llama", sizes=(32000, 14336, 32, 8, 131072), sliding_window=4096, window="all"),
    "ministral3": _type("llama", sizes=(131072, 14336, 32, 8, 262144), head_dim=128, window="all"),
    "qwen2": _type(
        "llama",
        sizes=(151936, 22016, 32, 32, 32768),
        fixed={"qkv_bias": True},
        sliding_window=4096,
        max_window_layers=28,
        window="late",
    ),
    "qwen3": _type(
        "llama",
        sizes=(151936, 22016, 32, 32, 32768),
        fixed=_HEAD_NORM,
        switches=_ATTENTION,
        head_dim=128,
        sliding_window=4096,
        max_window_layers=28,
        window="late",
    ),
    "granite": _type("llama", sizes=(32000, 11008, 32, None, 2048), switches=_ATTENTION_MLP),
    "smollm3": _type(
        "llama",
        sizes=(128256, 11008, 16, 4, 32768),
        switches=_ATTENTION_MLP,
        tie_word_embeddings=True,
        no_rope_layer_interval=4,
    ),
    "seed_oss": _type(
        "llama",
        sizes=(155136, 27648, 80, 8, 524288),
        switches={"qkv_bias": "attention_bias", "attention_out_bias": "attention_out_bias", "mlp_bias": "mlp_bias"},
        attention_bias=True,
        head_dim=128,
        attention_dropout=0.1,
        residual_dropout=0.1,
    ),
    "arcee": _type(
        "llama",
        sizes=(32000, 18432, 32, None, 4096),
        fixed={"gated_mlp": False},
        switches=_ATTENTION_MLP,
        hidden_act="relu2",
    ),
    "hunyuan_v1_dense": _type("llama", sizes=(290943, 11008, 32, None, 2048), fixed=_HEAD_NORM, switches=_ATTENTION),
    "olmo": _type(
        "llama", sizes=(50304, 11008, 32, None, 2048), fixed={"norm": "layer_no_affine"}, switches=_ATTENTION
    ),
    "stablelm": _type(
        "llama",
        sizes=(50304, 6912, 32, 32, 4096),
        fixed={"norm": "layer"},
        switches={"qkv_bias": "use_qkv_bias", "parallel_residual": "use_parallel_residual"},
        partial_rotary_factor=0.25,
    ),
    "olmo2": _type("olmo2", sizes=(50304, 11008, 32, None, 2048), fixed=_FULL_NORM, switches=_ATTENTION),
    "olmo3": _type(
        "olmo2",
        sizes=(50304, 11008, 32, None, 2048),
        fixed=_FULL_NORM,
        switches=_ATTENTION,
        sliding_window=4096,
        sliding_window_pattern=4,
        window="pattern",
    ),
    "gemma": _type("gemma", sizes=(256000, 24576, 16, 16, 8192), switches=_ATTENTION, **_GEMMA),
    "gemma2": _type(
        "gemma2",
        sizes=(256000, 9216, 8, 4, 8192),
        fixed={"norms_per_block": 4},
        switches=_ATTENTION,
        sliding_window=4096,
        sliding_window_pattern=2,
        window="pattern",
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
        **_GEMMA,
    ),
    "gemma3_text": _type(
        "gemma3",
        sizes=(262208, 9216, 8, 4, 131072),
        fixed={"norms_per_block": 4} | _HEAD_NORM,
        switches=_ATTENTION,
        sliding_window=4096,
        sliding_window_pattern=6,
        window="pattern",
        **_GEMMA,
    ),
    "cohere": _type(
        "cohere",
        sizes=(256000, 22528, 64, None, 8192),
        fixed={"norm": "layer", "norms_per_block": 1, "parallel_residual": True},
        switches=_ATTENTION,
        tie_word_embeddings=True,
    ),
    "cohere2": _type(
        "cohere",
        sizes=(256000, 22528, 64, None, 8192),
        fixed={"norm": "layer", "norms_per_block": 1, "parallel_residual": True},
        switches=_ATTENTION,
        tie_word_embeddings=True,
        sliding_window=4096,
        sliding_window_pattern=4,
        window="pattern",
    ),
    "glm": _type(
        "glm",
        sizes=(151552, 13696, 32, 2, 131072),
        fixed={"fused_gate_up": True},
        switches=_QKV,
        attention_bias=True,
        head_dim=128,
        partial_rotary_factor=0.5,
    ),
    "glm4": _type(
        "glm4",
        sizes=(151552, 13696, 32, 2, 131072),
        fixed={"fused_gate_up": True, "norms_per_block": 4},
        switches=_QKV,
        attention_bias=True,
        head_dim=128,
        partial_rotary_factor=0.5,
    ),
    "phi3": _type(
        "phi3",
        sizes=(32064, 8192, 32, None, 4096),
        fixed={"fused_qkv": True, "fused_gate_up": True},
        window="all",
    ),
    "phi": _type(
        "phi",
        sizes=(51200, 8192, 32, None, 2048),
        fixed=_LAYER_NORM_MLP | _ALL_BIASES | {"lm_head_bias": True, "norms_per_block": 1, "parallel_residual": True},
        hidden_act="gelu_new",
        partial_rotary_factor=0.5,
    ),
    "apertus": _type(
        "apertus",
        sizes=(131072, 14336, 32, None, 65536),
        fixed={"gated_mlp": False} | _HEAD_NORM,
        switches=_ATTENTION,
        hidden_act="xielu",
    ),
    "starcoder2": _type(
        "starcoder2",
        sizes=(49152, 12288, 24, 2, 4096),
        fixed=_LAYER_NORM_MLP,
        switches=dict.fromkeys(_ALL_BIASES, "use_bias"),
        use_bias=True,
        hidden_act=_GELU_TANH,
        tie_word_embeddings=True,
        window="all",
    ),
    "gpt_neox": _type(
        "gpt_neox",
        sizes=(50432, 24576, 64, None, 2048),
        fixed=_LAYER_NORM_MLP | {"fused_qkv": True, "mlp_bias": True},
        switches=_ATTENTION | {"parallel_residual": "use_parallel_residual"},
        attention_bias=True,
        use_parallel_residual=True,
        hidden_act="gelu",
        partial_rotary_factor=0.25,
    ),
    "falcon": _type(
        "falcon",
        sizes=(65024, 4 * 4544, 71, None, 2048),
        fixed=_LAYER_NORM_MLP | {"fused_qkv": True},
        switches=dict.fromkeys(_ALL_BIASES, "bias"),
        tie_word_embeddings=True,
        hidden_act="gelu",
        multi_query=True,
        parallel_attn=True,
    ),
    "gpt2": _type(
        "gpt2",
        sizes=(50257, 4 * 768, 12, None, 1024),
        fixed=_LAYER_NORM_MLP | _ALL_BIASES | {"fused_qkv": True, "rotary_fraction": 0.0},
        tie_word_embeddings=True,
        hidden_act="gelu_new",
        attention_dropout=0.1,
        resid_pdrop=0.1,
        embd_pdrop=0.1,
    ),
    "mixtral": _type(
        "mixtral", sizes=(32000, 14336, 32, 8, 131072), window="all", num_local_experts=8, num_experts_per_tok=2
    ),
    "olmoe": _type(
        "olmoe",
        sizes=(50304, 2048, 16, None, 4096),
        fixed=_FULL_NORM,
        switches=_ATTENTION,
        num_local_experts=64,
        num_experts_per_tok=8,
    ),
    "qwen2_moe": _type(
        "qwen2_moe",
        sizes=(151936, 5632, 16, 16, 32768),
        switches={"qkv_bias": "qkv_bias"},
        qkv_bias=True,
        sliding_window=4096,
        max_window_layers=28,
        window="alternate",
        num_local_experts=60,
        num_experts_per_tok=4,
        moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632,
        decoder_sparse_step=1,
    ),
    "qwen3_moe": _type(
        "qwen3_moe",
        sizes=(151936, 6144, 32, 4, 32768),
        fixed=_HEAD_NORM,
        switches=_ATTENTION,
        sliding_window=4096,
        window="enabled",
        num_local_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        decoder_sparse_step=1,
    ),
    "glm4_moe": _type(
        "glm4_moe",
        sizes=(151552, 10944, 96, 8, 131072),
        switches=_QKV,
        partial_rotary_factor=0.5,
        num_local_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=1408,
        n_shared_experts=1,
        first_k_dense_replace=1,
    ),
    "gpt_oss": _type(
        "gpt_oss",
        sizes=(201088, 2880, 64, 8, 131072),
        switches=_ATTENTION,
        attention_bias=True,
        head_dim=64,
        sliding_window=128,
        sliding_window_pattern=2,
        window="pattern",
        num_local_experts=128,
        num_experts_per_tok=4,
    ),
}

# The text models of multimodal configs that are another type's block under a name of their own. Older Qwen2-VL files
# have the text fields beside vision_config rather than in text_config.
_QWEN2_VL = ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text")
MODEL_TYPES.update(dict.fromkeys(_QWEN2_VL, MODEL_TYPES["qwen2"]))
MODEL_TYPES["qwen3_vl_text"] = MODEL_TYPES["qwen3"]
