"""From a model's `config.json` (already parsed) to a `ModelSpec`: what its fields mean, and what absent ones mean.

Pure: takes a mapping and a name for messages, reads no files. What each model_type implies is in `model_types.py`.
Of a multimodal config it takes `text_config`; the rest is `towers.py`'s. Architectures without softmax attention in
every layer (Mamba, linear attention, short convolutions) and latent attention are refused by name rather than guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.facts.config_fields import MANY, Fields
from vramwise.facts.model_types import ASSUMED, MODEL_TYPES, ModelType
from vramwise.facts.towers import around_text
from vramwise.types import ModelSpec

# The deepest models, made by stacking others, have some 315 layers; each takes time and memory to simulate.
_MOST_LAYERS = 320
# Experts of all layers together; the largest models have some 24,000.
_MOST_EXPERTS = 2**17
_ATTENTION_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}

# Fields that mean: the block is not one of ours, whatever else looks like llama.
_FOREIGN = {
    "kv_lora_rank": "latent attention",
    "linear_num_value_heads": "linear attention",
    "linear_attn_config": "linear attention",
    "ssm_cfg": "state-space layers",
    "mamba_d_state": "state-space layers",
    "mamba_d_conv": "state-space layers",
    "ssm_state_size": "state-space layers",
    "conv_L_cache": "convolution layers",
    "attn_config": "an attention of its own",
    "altup_num_inputs": "alternating updates",
    "hidden_size_per_layer_input": "embeddings in every layer",
    "global_head_dim": "layers of different head sizes",
    "block_configs": "a different block in every layer",
}


def model_from_config(config: Mapping[str, Any], *, name: str, source: str) -> ModelSpec:
    """The dimensions in a config.json. `source` names the file in messages and in the spec."""
    model_type, values = _text_model(config, source)
    known = MODEL_TYPES.get(model_type)
    if known is None:
        _refuse_foreign(model_type, values, source)
    kind = known or ASSUMED
    fields = Fields(values, kind.defaults, source)
    sizes = _sizes(fields, model_type)
    layers = sizes["num_hidden_layers"]
    block = _block(fields, kind, model_type)
    if model_type != "gpt2" and (turned := int(sizes["head_dim"] * block["rotary_fraction"])) % 2:
        raise fields.wrong("head_dim", f"leaves {turned} for rotary embeddings, which turn pairs: it must be even")
    return ModelSpec(
        name=name,
        source=source,
        model_type=model_type,
        family=kind.family,
        family_assumed=known is None,
        **sizes,
        **block,
        **_windows(fields, kind, model_type, layers),
        **_experts(fields, kind, model_type, layers, sizes["intermediate_size"]),
        **around_text(config, text_hidden=sizes["hidden_size"], source=source),
        checkpoint_quantization=_quantization(config, source),
    )


def _text_model(config: Mapping[str, Any], source: str) -> tuple[str, Mapping[str, Any]]:
    """The model_type and fields of the text model: the config itself, or its text_config."""
    fields = Fields(config, {}, source)
    model_type = fields.text("model_type")
    text = fields.mapping("text_config")
    if text and "hidden_size" not in config:
        inner = Fields(text, {}, f"{source} (text_config)").text("model_type") or f"{model_type}_text"
        # Tying is the outer model's decision where it says so.
        outer = {key: config[key] for key in ("tie_word_embeddings",) if config.get(key) is not None}
        return inner, {**text, **outer}
    if model_type is None:
        raise fields.wrong("model_type", "is missing: is this a transformers config.json?")
    return model_type, config


def _refuse_foreign(model_type: str, values: Mapping[str, Any], source: str) -> None:
    for field, what in _FOREIGN.items():
        if values.get(field):
            raise VramwiseError(f"{source}: model_type '{model_type}' has {what} ('{field}'), which is not supported")


def _sizes(fields: Fields, model_type: str) -> dict[str, Any]:
    hidden = fields.integer("hidden_size", "n_embd", "n_embed")
    heads = fields.integer("num_attention_heads", "n_head", most=MANY)
    kv_heads = _kv_heads(fields, model_type, heads)
    if heads % kv_heads:
        raise fields.wrong("num_key_value_heads", f"must divide num_attention_heads: {heads} / {kv_heads}")
    return {
        "hidden_size": hidden,
        "num_hidden_layers": fields.integer("num_hidden_layers", "n_layer", most=_MOST_LAYERS),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": _head_dim(fields, model_type, hidden, heads),
        "intermediate_size": _intermediate(fields, model_type, hidden),
        "vocab_size": fields.integer("vocab_size"),
        "max_position_embeddings": fields.integer("max_position_embeddings", "n_positions"),
        "tie_word_embeddings": fields.flag("tie_word_embeddings"),
    }


def _kv_heads(fields: Fields, model_type: str, heads: int) -> int:
    if model_type == "falcon":
        if fields.flag("new_decoder_architecture") or not fields.flag("multi_query"):
            return fields.optional_integer("num_kv_heads", "n_head_kv") or heads
        return 1
    if model_type in ("gpt2", "gpt_neox"):
        return heads
    return fields.optional_integer("num_key_value_heads") or heads


def _head_dim(fields: Fields, model_type: str, hidden: int, heads: int) -> int:
    # These compute it whatever the file says.
    own = (
        None
        if model_type in ("falcon", "gpt2", "gpt_neox", "stablelm", "cohere2")
        else fields.optional_integer("head_dim")
    )
    if own is not None:
        return own
    if hidden % heads:
        raise fields.wrong("hidden_size", f"must be a multiple of num_attention_heads: {hidden} / {heads}")
    return hidden // heads


def _intermediate(fields: Fields, model_type: str, hidden: int) -> int:
    if model_type == "falcon":
        return fields.optional_integer("ffn_hidden_size") or 4 * hidden
    if model_type == "gpt2":
        return fields.optional_integer("n_inner") or 4 * hidden
    return fields.integer("intermediate_size")


def _block(fields: Fields, kind: ModelType, model_type: str) -> dict[str, Any]:
    block: dict[str, Any] = {
        "activation": _activation(fields, model_type),
        "rotary_fraction": _rotary_fraction(fields),
        "attention_dropout": fields.fraction("attention_dropout", "attn_pdrop"),
        "hidden_dropout": fields.fraction("hidden_dropout", "resid_pdrop", "residual_dropout"),
        "embedding_dropout": fields.fraction("embd_pdrop", "embedding_dropout"),
        "attn_logit_softcapping": fields.optional_number("attn_logit_softcapping"),
        "final_logit_softcapping": fields.optional_number("final_logit_softcapping"),
    }
    block |= {spec: fields.flag(field) for spec, field in kind.switches.items()}
    block |= kind.fixed
    if fields.flag("qk_layernorm", "use_qk_norm") and block.get("qk_norm", "none") == "none":
        block["qk_norm"] = "head"
    if model_type == "stablelm" and block["parallel_residual"]:
        block["norms_per_block"] = 1
    if model_type == "falcon":
        block |= _falcon(fields)
    return block


def _activation(fields: Fields, model_type: str) -> str:
    found = fields.text("hidden_act", "hidden_activation", "activation_function", "activation") or "silu"
    if model_type in ("gemma2", "gemma3_text"):
        found = fields.text("hidden_activation", "hidden_act") or found
    # The first Gemma files say "gelu" where the tanh approximation is meant; transformers reads them so.
    return "gelu_pytorch_tanh" if model_type == "gemma" and found == "gelu" else found


def _rotary_fraction(fields: Fields) -> float:
    rope = {**fields.mapping("rope_scaling"), **fields.mapping("rope_parameters")}
    value = rope.get("partial_rotary_factor")
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    return (
        1.0
        if fields.get("partial_rotary_factor", "rotary_pct") is None
        else fields.fraction("partial_rotary_factor", "rotary_pct")
    )


def _falcon(fields: Fields) -> dict[str, Any]:
    """Falcon's three blocks: one norm shared in parallel (7B), two norms in parallel (40B, 180B), sequential (RW)."""
    new = fields.flag("new_decoder_architecture")
    parallel = new or fields.flag("parallel_attn")
    norms = fields.optional_integer("num_ln_in_parallel_attn") or (2 if new else 1)
    return {
        "parallel_residual": parallel,
        "norms_per_block": norms if parallel else 2,
        "rotary_fraction": 0.0 if fields.flag("alibi") else 1.0,
    }


def _windows(fields: Fields, kind: ModelType, model_type: str, layers: int) -> dict[str, Any]:
    """Sliding windows and rotary layers; `layer_types` has one entry a layer."""
    window = (
        None if kind.window == "none" or fields.get("sliding_window") in (None, 0) else fields.integer("sliding_window")
    )
    if kind.window in ("late", "enabled", "alternate") and not fields.flag("use_sliding_window"):
        window = None
    types = _layer_types(fields, kind, layers, window)
    nope: tuple[int, ...] = ()
    if model_type == "smollm3":
        nope = _smollm3_nope(fields, layers)
    elif model_type == "cohere2":
        nope = tuple(layer for layer, kind_ in enumerate(types) if kind_ == "full_attention")
    return {"sliding_window": window, "layer_types": types, "nope_layers": nope}


def _layer_types(fields: Fields, kind: ModelType, layers: int, window: int | None) -> tuple[str, ...]:
    written = fields.texts("layer_types")
    if written is not None and kind.window != "all":
        if len(written) != layers:
            raise fields.wrong("layer_types", f"has {len(written)} entries for {layers} layers")
        foreign = sorted(set(written) - _ATTENTION_LAYERS)
        if foreign:
            raise fields.wrong("layer_types", f"has layers of a kind that is not supported: {', '.join(foreign)}")
        return written
    return tuple(
        "sliding_attention" if window is not None and _slides(fields, kind, layer) else "full_attention"
        for layer in range(layers)
    )


def _slides(fields: Fields, kind: ModelType, layer: int) -> bool:
    match kind.window:
        case "late":
            return layer >= fields.count("max_window_layers")
        case "alternate":
            return layer % 2 == 0 and layer < fields.count("max_window_layers")
        case "pattern":
            return (layer + 1) % fields.integer("sliding_window_pattern") != 0
        case _:
            return True


def _smollm3_nope(fields: Fields, layers: int) -> tuple[int, ...]:
    rotary = fields.integers("no_rope_layers")  # 1 = has rotary embeddings, despite the name
    if rotary:
        return tuple(layer for layer, has in enumerate(rotary[:layers]) if not has)
    every = fields.integer("no_rope_layer_interval")
    return tuple(layer for layer in range(layers) if (layer + 1) % every == 0)


def _experts(fields: Fields, kind: ModelType, model_type: str, layers: int, intermediate: int) -> dict[str, Any]:
    experts = fields.count("num_local_experts", "num_experts", "n_routed_experts")
    if experts == 0:
        return {}
    if experts * layers > _MOST_EXPERTS:
        raise fields.wrong(
            "num_experts", f"is {experts:,} in {layers} layers: no model has more than {_MOST_EXPERTS:,} in all"
        )
    if kind.family == "llama":
        raise fields.wrong("model_type", f"'{model_type}' has {experts} experts, in a block that is not supported")
    # The others give the experts the width of intermediate_size.
    has_own = kind.family in ("qwen2_moe", "qwen3_moe", "glm4_moe")
    own = fields.optional_integer("moe_intermediate_size") if has_own else None
    shared = fields.count("n_shared_experts") * (own or 0) or fields.count("shared_expert_intermediate_size")
    return {
        "num_experts": experts,
        "num_experts_per_tok": fields.integer("num_experts_per_tok"),
        "moe_intermediate_size": own or intermediate,
        "shared_expert_intermediate_size": shared,
        "dense_layers": _dense_layers(fields, kind, layers),
    }


def _dense_layers(fields: Fields, kind: ModelType, layers: int) -> tuple[int, ...]:
    if kind.family == "glm4_moe":
        return tuple(range(min(layers, fields.count("first_k_dense_replace"))))
    if kind.family not in ("qwen2_moe", "qwen3_moe"):
        return ()
    only = fields.integers("mlp_only_layers")
    step = fields.integer("decoder_sparse_step")
    return tuple(layer for layer in range(layers) if layer in only or (layer + 1) % step)


def _quantization(config: Mapping[str, Any], source: str) -> str | None:
    stored = Fields(config, {}, source).mapping("quantization_config")
    method = stored.get("quant_method")
    if method == "bitsandbytes":
        return "bitsandbytes_4bit" if stored.get("load_in_4bit") else "bitsandbytes_8bit"
    return str(method) if method else None
