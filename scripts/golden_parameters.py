"""Write tests/data/parameter_counts.json: what transformers itself says the parameters of every family are.

Needs torch and transformers; the tests that read the file do not. Models are built on the meta device, without weights.

    python scripts/golden_parameters.py          # everything
    python scripts/golden_parameters.py --new    # adds the lines that are missing
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "data" / "parameter_counts.json"
sys.path.insert(0, str(ROOT / "src"))

_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SMALL = {
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
# Types that need more than the common fields, or other ones: their cases are written out below. The text models of
# multimodal Qwens have no class of their own.
_WRITTEN_OUT = (
    "ministral", "ministral3", "hunyuan_v1_dense", "gpt2", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "glm4_moe",
    "gpt_oss", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text",
    "glm4v_text", "mllama_text_model", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "deepseek_v2", "deepseek_v3",
    "glm4_moe_lite", "glm_moe_dsa", "mistral4", "falcon_h1", "granitemoehybrid", "nemotron_h", "jamba", "lfm2",
    "lfm2_moe", "llama4_text", "gemma4_text", "gemma4_unified_text", "gemma3n_text", "afmoe", "kimi_linear", "dbrx",
    "mpt", "gptj", "minimax_m2", "paddleocr_vl_text", "paddleocr_vl",
    # no class in transformers: their code is on the hub
    "kimi_k2", "mimo", "bailing_moe", "bailing_moe_v2", "baichuan", "chatglm", "deepseek", "internlm", "internlm2",
    "minicpm", "orion", "qwen",
    # encoders, and decoders that attend to one
    "albert", "bart", "bert", "bloom", "deberta-v2", "distilbert", "electra", "modernbert", "mt5", "roberta", "t5",
    "whisper", "xlm-roberta",
)  # fmt: skip
# What cannot be built here: its vision tower needs timm.
NOT_BUILT = ("gemma3n",)
# Parts of models that no family describes: their parameters are left out, which predictions say.
LEFT_OUT = ("gemma4_audio",)
_VISION = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 56,
}


def small_cases() -> Iterable[dict[str, Any]]:
    """Configs of a few layers: each type as it is, then what its switches change."""
    from vramwise.models.families import all_model_types

    for kind in all_model_types():
        if kind not in _WRITTEN_OUT:
            yield {"model_type": kind, **_SMALL}
    yield {"model_type": "ministral", **_SMALL, "head_dim": 16}
    yield {"model_type": "ministral3", **_SMALL, "head_dim": 16}
    yield {"model_type": "hunyuan_v1_dense", **_SMALL, "head_dim": 16}
    yield {"model_type": "llama", **_SMALL, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    yield {"model_type": "llama", **_SMALL, "head_dim": 24}
    yield {"model_type": "qwen3", **_SMALL, "attention_bias": True}
    yield {"model_type": "seed_oss", **_SMALL, "attention_out_bias": True, "mlp_bias": True}
    yield {"model_type": "stablelm", **_SMALL, "use_qkv_bias": True, "qk_layernorm": True}
    yield {"model_type": "stablelm", **_SMALL, "use_parallel_residual": True}
    yield {"model_type": "phi", **_SMALL, "qk_layernorm": True}
    yield {"model_type": "cohere", **_SMALL, "use_qk_norm": True}
    yield {"model_type": "gpt_neox", **_SMALL, "attention_bias": False, "tie_word_embeddings": True}
    yield {"model_type": "starcoder2", **_SMALL, "use_bias": False, "tie_word_embeddings": False}
    yield {"model_type": "falcon", **_SMALL, "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True}
    falcon = {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}
    yield {"model_type": "falcon", **_SMALL, **falcon}
    yield {"model_type": "falcon", **_SMALL, "multi_query": False, "parallel_attn": False, "alibi": True}
    yield {"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 100, "n_positions": 128}
    yield {"model_type": "mixtral", **_SMALL, "num_local_experts": 4}
    yield {"model_type": "olmoe", **_SMALL, "num_experts": 4}
    shared = {"shared_expert_intermediate_size": 80, "mlp_only_layers": [1]}
    yield {"model_type": "qwen2_moe", **_SMALL, **_EXPERTS, **shared}
    yield {"model_type": "qwen3_moe", **_SMALL, **_EXPERTS, "decoder_sparse_step": 2, "head_dim": 32}
    glm = {"n_routed_experts": 4, "n_shared_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
    yield {"model_type": "glm4_moe", **_SMALL, **glm, "head_dim": 16, "use_qk_norm": True}
    yield {"model_type": "gpt_oss", **_SMALL, "num_local_experts": 4, "head_dim": 16}
    yield from _encoder_cases()
    yield from _linear_and_latent_cases()
    yield from _state_space_cases()
    yield from _other_cases()
    yield from _multimodal_cases()
    yield from _more_multimodal_cases()


_FIVE = {**_SMALL, "num_hidden_layers": 5, "head_dim": 16}
_SIX = {**_FIVE, "num_hidden_layers": 6}
_NO_HEAD_DIM = {key: value for key, value in _FIVE.items() if key != "head_dim"}
_LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
}
_LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 24,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
}
_DEEPSEEK = {
    **_LATENT,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "n_shared_experts": 2,
    "n_group": 1,
    "topk_group": 1,
}


# Whose parameters are those without a head.
_ENCODERS = ("albert", "bert", "deberta-v2", "distilbert", "electra", "modernbert", "roberta", "xlm-roberta")
_BERT = {key: value for key, value in _SMALL.items() if key != "num_key_value_heads"}
_TWO_STACKS = {
    "d_model": 64,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 112,
    "decoder_ffn_dim": 112,
    "vocab_size": 100,
}
_T5 = {"d_model": 64, "d_kv": 24, "d_ff": 112, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4}


def _encoder_cases() -> Iterable[dict[str, Any]]:
    yield from ({"model_type": kind, **_BERT} for kind in ("bert", "roberta", "xlm-roberta", "electra", "modernbert"))
    yield {"model_type": "electra", **_BERT, "embedding_size": 64}
    yield {"model_type": "albert", **_BERT, "embedding_size": 32}
    narrow = {"dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 112, "max_position_embeddings": 128}
    yield {"model_type": "distilbert", **narrow, "vocab_size": 100}
    distances = {
        "relative_attention": True,
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "norm_rel_ebd": "layer_norm",
    }
    distances |= {"position_buckets": 16, "max_relative_positions": -1, "position_biased_input": False}
    yield {"model_type": "deberta-v2", **_BERT, **distances}
    # untied ones are not here: transformers ties all that it builds anew, and unties those whose files hold a head
    yield {"model_type": "t5", **_T5, "vocab_size": 100}
    yield {"model_type": "t5", **_T5, "vocab_size": 100, "feed_forward_proj": "gated-gelu"}
    yield {"model_type": "mt5", **_T5, "vocab_size": 100, "tie_word_embeddings": True}
    yield {"model_type": "bart", **_TWO_STACKS, "max_position_embeddings": 128}
    audio = {"num_mel_bins": 20, "max_source_positions": 40, "max_target_positions": 30}
    yield {"model_type": "whisper", **_TWO_STACKS, **audio, **_TOKENS}
    yield {"model_type": "bloom", "hidden_size": 64, "n_layer": 3, "n_head": 4, "vocab_size": 100}


def _linear_and_latent_cases() -> Iterable[dict[str, Any]]:
    shared = {**_EXPERTS, "shared_expert_intermediate_size": 40}
    yield {"model_type": "qwen3_5_text", **_FIVE, **_LINEAR}
    yield {"model_type": "qwen3_5_moe_text", **_FIVE, **_LINEAR, **shared}
    yield {"model_type": "qwen3_next", **_FIVE, **_LINEAR, **shared, "mlp_only_layers": [1]}
    for kind in ("deepseek_v2", "deepseek_v3", "glm4_moe_lite"):
        yield {"model_type": kind, **_NO_HEAD_DIM, **_DEEPSEEK}
    plain = {**_DEEPSEEK, "q_lora_rank": None, "first_k_dense_replace": 1}
    yield {"model_type": "deepseek_v2", **_NO_HEAD_DIM, **plain}
    index = {"index_head_dim": 8, "index_n_heads": 2}
    yield {"model_type": "glm_moe_dsa", **_NO_HEAD_DIM, **_DEEPSEEK, **index}
    some = {"indexer_types": ["full", "shared", "full", "shared", "shared"]}
    yield {"model_type": "glm_moe_dsa", **_NO_HEAD_DIM, **_DEEPSEEK, **index, **some}
    delta = {"head_dim": 16, "num_heads": 4, "short_conv_kernel_size": 4, "full_attn_layers": [4]}
    kimi = {**_LATENT, "num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 48}
    del kimi["q_lora_rank"]
    delta["kda_layers"] = [1, 2, 3, 5]
    yield {"model_type": "kimi_linear", **_NO_HEAD_DIM, **kimi, "num_shared_experts": 2, "linear_attn_config": delta}


def _state_space_cases() -> Iterable[dict[str, Any]]:
    mamba = {"mamba_n_heads": 6, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 8}
    yield {"model_type": "falcon_h1", **_FIVE, **mamba, "mamba_d_ssm": 96}
    biased = {"mamba_rms_norm": True, "projectors_bias": True, "mamba_proj_bias": True, "attention_bias": True}
    yield {"model_type": "falcon_h1", **_FIVE, **mamba, "mamba_d_ssm": 96, **biased}
    kinds = ["mamba", "attention", "mamba", "mamba", "attention"]
    granite = {**mamba, "mamba_n_heads": 8, "mamba_n_groups": 1, "layer_types": kinds, "shared_intermediate_size": 40}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    yield {"model_type": "granitemoehybrid", **_NO_HEAD_DIM, **granite, **experts}
    yield {"model_type": "granitemoehybrid", **_NO_HEAD_DIM, **granite, "num_local_experts": 0}
    nemotron = {
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 2,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "moe_shared_expert_intermediate_size": 40,
        "hybrid_override_pattern": "ME*-M",
    }
    sizes = {key: value for key, value in _FIVE.items() if key != "num_hidden_layers"}
    yield {"model_type": "nemotron_h", **sizes, **nemotron}
    yield {"model_type": "nemotron_h", **sizes, **nemotron, "moe_latent_size": 24}
    yield {"model_type": "jamba", **_NO_HEAD_DIM, "num_hidden_layers": 9, "num_experts": 4}
    yield {"model_type": "lfm2", **_NO_HEAD_DIM, "full_attn_idxs": [1, 3]}
    conv = ["conv", "conv", "full_attention", "conv", "full_attention"]
    yield {"model_type": "lfm2_moe", **_NO_HEAD_DIM, **_EXPERTS, "layer_types": conv}


_GEMMA4_MOE = {
    "enable_moe_block": True,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 24,
    "hidden_size_per_layer_input": 0,
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
    "global_head_dim": 32,
}
_LLAMA4 = {"num_local_experts": 4, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 80}


def _other_cases() -> Iterable[dict[str, Any]]:
    yield {"model_type": "llama4_text", **_SIX, **_LLAMA4}
    yield {"model_type": "gemma4_text", **_SIX, **_GEMMA4_MOE}
    inputs = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 90}
    shared = {"num_kv_shared_layers": 2, "use_double_wide_mlp": True, "global_head_dim": 32}
    # each kind of layer has one before the shared ones, which transformers 5.23 insists on
    shared["layer_types"] = ["sliding_attention", "full_attention"] * 3
    yield {"model_type": "gemma4_text", **_SIX, **inputs, **shared}
    yield {"model_type": "gemma4_unified_text", **_SIX, "num_global_key_value_heads": 1}
    yield {"model_type": "gemma3n_text", **_SIX, **inputs, "num_kv_shared_layers": 1, "laurel_rank": 4}
    yield {"model_type": "afmoe", **_SIX, **_EXPERTS, "num_dense_layers": 2}
    mpt = {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 128, "vocab_size": 100}
    yield {"model_type": "mpt", **mpt}
    gptj = {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 100, "n_positions": 128, "rotary_dim": 8}
    yield {"model_type": "gptj", **gptj}
    yield {"model_type": "minimax_m2", **_FIVE, "num_local_experts": 4, "num_experts_per_tok": 2}
    yield {"model_type": "nemotron", **_SMALL, "attention_bias": True, "mlp_bias": True}
    attention = {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 500000.0}
    mixture = {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2}
    yield {"model_type": "dbrx", **mpt, "attn_config": attention, "ffn_config": mixture}


def _more_multimodal_cases() -> Iterable[dict[str, Any]]:
    def text(kind: str, **more: Any) -> dict[str, Any]:
        sizes = _NO_HEAD_DIM if kind in ("lfm2", "mllama_text_model", "mistral4") else _FIVE
        return {"model_type": kind, **sizes, **_TOKENS, **more}

    tower = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4}
    square = {"image_size": 56, "patch_size": 14}
    qwen = {"depth": 2, "num_heads": 4, "patch_size": 14, "spatial_merge_size": 2}
    wide = {"hidden_size": 48, "intermediate_size": 80, "out_hidden_size": 64, "num_position_embeddings": 64, **qwen}

    def model(kind: str, text_config: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"model_type": kind, "text_config": text_config, "tie_word_embeddings": False, **more}

    old = {"embed_dim": 48, "hidden_size": 64, **qwen}
    yield model("qwen2_vl", text("qwen2_vl_text"), vision_config=old)
    newer = {key: value for key, value in wide.items() if key != "num_position_embeddings"}
    yield model("qwen2_5_vl", text("qwen2_5_vl_text"), vision_config=newer)
    yield model("qwen3_vl", text("qwen3_vl_text"), vision_config={**wide, "deepstack_visual_indexes": [0]})
    yield model("qwen3_5", text("qwen3_5_text", **_LINEAR), vision_config=wide)
    yield model("glm46v", text("glm4v_text"), vision_config={"model_type": "glm4v_vision", **newer, "image_size": 56})
    sides = {"image_size": [56, 56], "patch_size": [14, 14]}
    yield model("internvl", text("qwen3"), vision_config={"model_type": "internvl_vision", **tower, **sides})
    paddle = {"model_type": "paddleocr_vl_vision", **tower, **square}
    yield model("paddleocr_vl", text("paddleocr_vl_text", tie_word_embeddings=False), vision_config=paddle)
    smol = {"model_type": "smolvlm_vision", **tower, **square}
    yield model("smolvlm", text("llama"), vision_config=smol, scale_factor=2)
    siglip = {"model_type": "siglip2_vision_model", **tower, "num_patches": 64, "patch_size": 14}
    liquid = text("lfm2", full_attn_idxs=[1])
    yield {"model_type": "lfm2_vl", "text_config": liquid, "vision_config": siglip, "projector_hidden_size": 40}
    flat = {key: value for key, value in tower.items() if key != "num_attention_heads"}
    own = {
        "attention_heads": 4,
        "num_global_layers": 1,
        "intermediate_layers_indices": [0, 1],
        "vision_output_dim": 144,
    }
    mllama = {"model_type": "mllama_vision_model", **flat, **own, **square}
    yield model("mllama", text("mllama_text_model", cross_attention_layers=[2]), vision_config=mllama)
    inputs = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 90}
    gemma = {"model_type": "gemma4_vision", **tower, "num_key_value_heads": 2, "head_dim": 12}
    text4 = text("gemma4_text", **inputs)
    yield {"model_type": "gemma4", "text_config": text4, "vision_config": gemma, "audio_config": None}
    audio = {"model_type": "voxtral_encoder", **tower, "intermediate_size": 192}
    yield model("voxtral", text("llama"), audio_config=audio)
    pixtral = {"model_type": "pixtral", **tower, "head_dim": 12}
    yield model("mistral3", text("mistral4", **_DEEPSEEK), vision_config=pixtral)


def _multimodal_cases() -> Iterable[dict[str, Any]]:
    text = {"model_type": "gemma3_text", **_SMALL, **_TOKENS}
    siglip = {"model_type": "siglip_vision_model", **_VISION, "patch_size": 14, "vision_use_head": False}
    # What a gemma3 config needs besides: image tokens that divide the patches.
    gemma = {"mm_tokens_per_image": 4, "image_token_index": 5, "boi_token_index": 6, "eoi_token_index": 7}
    yield {"model_type": "gemma3", "text_config": text, "vision_config": siglip, **gemma}
    with_head = {**siglip, "vision_use_head": True}
    yield {"model_type": "gemma3", "text_config": text, "vision_config": with_head, **gemma}
    llama = {"model_type": "llama", **_SMALL, **_TOKENS}
    clip = {"model_type": "clip_vision_model", **_VISION, "patch_size": 14}
    yield {"model_type": "llava", "text_config": llama, "vision_config": clip, "image_token_index": 5}
    mistral = {"model_type": "mistral", **_SMALL, **_TOKENS}
    pixtral = {"model_type": "pixtral", **_VISION, "patch_size": 14, "head_dim": 12}
    yield {
        "model_type": "mistral3",
        "text_config": mistral,
        "vision_config": pixtral,
        "image_token_index": 5,
        "tie_word_embeddings": False,
    }


def named_shapes(config: Mapping[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """The names and shapes of the parameters of the model transformers builds from this config, in its order."""
    import torch
    from transformers import (
        CONFIG_MAPPING,
        AutoModel,
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        AutoModelForMultimodalLM,
        AutoModelForSeq2SeqLM,
        AutoModelForSpeechSeq2Seq,
    )

    fields = {key: value for key, value in config.items() if key != "model_type"}
    made = CONFIG_MAPPING[config["model_type"]](**fields)
    auto = AutoModelForImageTextToText if "text_config" in config else AutoModelForCausalLM
    if config["model_type"] in _ENCODERS:
        auto = AutoModel
    elif config["model_type"] in ("t5", "mt5", "bart", "whisper"):
        auto = AutoModelForSpeechSeq2Seq if config["model_type"] == "whisper" else AutoModelForSeq2SeqLM
    if "vision_config" not in config and "audio_config" in config:
        auto = AutoModelForMultimodalLM
    with torch.device("meta"):
        model = auto.from_config(made)
    # Llama 4 keeps its head inside the text model; here a head is a head
    renamed = ((name.replace("language_model.lm_head", "lm_head"), p) for name, p in model.named_parameters())
    return [(name, tuple(parameter.shape)) for name, parameter in renamed]


def can_be_built(config: Mapping[str, Any]) -> bool:
    """Whether transformers alone has the model's code."""
    if (config.get("audio_config") or {}).get("model_type") in LEFT_OUT:
        return False
    from transformers import CONFIG_MAPPING

    return config["model_type"] in CONFIG_MAPPING and config["model_type"] not in NOT_BUILT


def digest(shapes: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    """A short fingerprint of names, shapes and order."""
    text = "\n".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _entry(config: Mapping[str, Any]) -> dict[str, Any]:
    from math import prod

    shapes = named_shapes(config)
    return {"count": sum(prod(shape) for _, shape in shapes), "tensors": len(shapes), "digest": digest(shapes)}


def _known_lines() -> tuple[str, dict[str, str]]:
    """The release that the file was made with, and its lines by their config or id."""
    stored = json.loads(GOLDEN.read_text())
    rows = [*stored["small"], *stored["real"]]
    return stored["transformers"], {json.dumps(row.get("config", row.get("id"))): json.dumps(row) for row in rows}


def main() -> None:
    """Build every case and write the file; with --new only cases that it does not have."""
    import transformers

    from vramwise.models.known import catalogue_shapes
    from vramwise.whole_files import write_new

    transformers.utils.logging.set_verbosity_error()
    made_with, known = transformers.__version__, dict[str, str]()
    if "--new" in sys.argv:
        before, known = _known_lines()
        made_with = before if made_with in before else f"{before}, new lines {made_with}"

    def line(key: str, value: Any, config: Mapping[str, Any]) -> str:
        return known.get(json.dumps(value)) or json.dumps({key: value, **_entry(config)})

    small = [config if "text_config" in config else {**config, **_TOKENS} for config in small_cases()]
    lines = [line("config", config, config) for config in small]
    shapes = [shape for shape in catalogue_shapes() if can_be_built(shape["config"])]
    real = [line("id", shape["ids"][0], shape["config"]) for shape in shapes]
    text = (
        f'{{\n"transformers": "{made_with}",\n"small": [\n'
        + ",\n".join(lines)
        + '\n],\n"real": [\n'
        + ",\n".join(real)
        + "\n]\n}\n"
    )
    json.loads(text)
    write_new(GOLDEN, text.encode("utf-8"))
    print(f"{len(lines)} small and {len(real)} real models in {GOLDEN.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
