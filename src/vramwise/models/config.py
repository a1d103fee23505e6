"""Turn a model's parsed `config.json` into a `ModelSpec`: what its fields mean, and what absent ones mean.

Pure: takes a mapping and a name for messages, reads no files. Each family defines what its model types imply. For a
multimodal config it reads `text_config`; `towers.py` handles the rest. Architectures without softmax attention in every
layer (Mamba, linear attention, short convolutions) and latent attention are rejected by name, not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from vramwise.errors import VramwiseError
from vramwise.models.families import assumed_type, find_type
from vramwise.models.families.base import Mixture, ModelType
from vramwise.models.families.config_fields import MANY, Fields, usual_names
from vramwise.models.families.towers import around_text
from vramwise.types import ModelSpec

# The deepest models, built by stacking others, have about 315 layers; each takes time and memory to simulate.
_MOST_LAYERS = 320
# Experts over all layers; the largest models have about 24,000.
_MOST_EXPERTS = 2**17
# Used if a config.json names no maximum context. It has no cost: families with position tables name theirs.
_LONG_CONTEXT = 131_072
_ATTENTION_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}

# Fields that show an unsupported block, however similar to llama the rest is.
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
    "is_encoder_decoder": "an encoder beside its decoder",
}


def model_from_config(config: Mapping[str, Any], *, name: str, source: str) -> ModelSpec:
    """Return the model of a config.json. `source` names the file in messages and in the spec.

    Raises VramwiseError if a field is missing, wrong or unsupported.
    """
    model_type, values = _text_model(config, source)
    known = find_type(model_type)
    if known is None:
        _refuse_foreign(model_type, values, source)
    family, kind = known or assumed_type()
    renamed = {usual: values[own] for usual, own in kind.names.items() if values.get(own) is not None}
    fields = Fields({**values, **(renamed if known else usual_names(values))}, kind.defaults, source)
    sizes = _sizes(fields, kind)
    found = {
        **sizes,
        **_block(fields, kind),
        **_windows(fields, kind, sizes["num_hidden_layers"], set((kind.block or family.block).mixers)),
        **_experts(fields, (kind.block or family.block).mixture, model_type, sizes),
    }
    if kind.own_sizes:
        found["sizes"] = tuple((name, fields.count(name)) for name in kind.own_sizes)
    if kind.settles is not None:
        found |= kind.settles(fields, found)
    if family.layout.positions is None and (turned := int(found["head_dim"] * found["rotary_fraction"])) % 2:
        raise fields.wrong("head_dim", f"leaves {turned} for rotary embeddings, which turn pairs: it must be even")
    return ModelSpec(
        name=name,
        source=source,
        model_type=model_type,
        family=family.name,
        family_assumed=known is None,
        **found,
        **around_text(config, text_hidden=sizes["hidden_size"], source=source),
        checkpoint_quantization=_quantization(config, source),
        reads=family.reads,
        stored_dtype=_stored_dtype(config, family.reads),
        random_weights=config.get("random_weights") is True,
    )


def describes(config: Mapping[str, Any]) -> bool:
    """Return whether a family lists the config's model_type.

    Also True if the config names none: `model_from_config` then reports that.
    """
    try:
        return find_type(_text_model(config, "config.json")[0]) is not None
    except VramwiseError:
        return True


def _text_model(config: Mapping[str, Any], source: str) -> tuple[str, Mapping[str, Any]]:
    """Return the model_type and fields of the text model: the config itself, or its text_config."""
    fields = Fields(config, {}, source)
    model_type = fields.text("model_type")
    text = fields.mapping("text_config")
    if text and "hidden_size" not in config:
        inner = Fields(text, {}, f"{source} (text_config)").text("model_type") or f"{model_type}_text"
        # The outer model decides on tying, if it says so.
        outer = {key: config[key] for key in ("tie_word_embeddings",) if config.get(key) is not None}
        return inner, {**text, **outer}
    if model_type is None:
        raise fields.wrong("model_type", "is missing: is this a transformers config.json?")
    return model_type, config


def _refuse_foreign(model_type: str, values: Mapping[str, Any], source: str) -> None:
    for field, what in _FOREIGN.items():
        if values.get(field):
            raise VramwiseError(f"{source}: model_type '{model_type}' has {what} ('{field}'), which is not supported")


def _sizes(fields: Fields, kind: ModelType) -> dict[str, Any]:
    hidden = fields.integer("hidden_size", "n_embd", "n_embed", "d_model")
    heads = fields.integer("num_attention_heads", "n_head", "n_heads", most=MANY)
    kv_heads = _kv_heads(fields, kind, heads)
    if heads % kv_heads:
        raise fields.wrong("num_key_value_heads", f"must divide num_attention_heads: {heads} / {kv_heads}")
    return {
        "hidden_size": hidden,
        "num_hidden_layers": fields.integer("num_hidden_layers", "n_layer", "n_layers", most=_MOST_LAYERS),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": _head_dim(fields, kind, hidden, heads),
        "intermediate_size": _intermediate(fields, kind, hidden),
        "vocab_size": fields.integer("vocab_size"),
        "max_position_embeddings": fields.optional_integer("max_position_embeddings", "n_positions", "max_seq_len")
        or _LONG_CONTEXT,
        "tie_word_embeddings": fields.flag("tie_word_embeddings"),
    }


def _kv_heads(fields: Fields, kind: ModelType, heads: int) -> int:
    if kind.kv_heads == "heads":
        return heads
    if kind.kv_heads == "field":
        return fields.optional_integer("num_key_value_heads") or heads
    return kind.kv_heads(fields, heads)


def _head_dim(fields: Fields, kind: ModelType, hidden: int, heads: int) -> int:
    own = None if kind.computes_head_dim else fields.optional_integer("head_dim")
    if own is not None:
        return own
    if hidden % heads:
        raise fields.wrong("hidden_size", f"must be a multiple of num_attention_heads: {hidden} / {heads}")
    return hidden // heads


def _intermediate(fields: Fields, kind: ModelType, hidden: int) -> int:
    if kind.mlp_width is not None:
        return fields.optional_integer(kind.mlp_width) or 4 * hidden
    written = fields.get("intermediate_size")
    if isinstance(written, list | tuple):  # one per layer (Gemma 3n): they must be equal
        widths = set(fields.integers("intermediate_size"))
        if len(widths) != 1 or min(widths) < 1:
            raise fields.wrong("intermediate_size", "must be one width, or the same one for every layer")
        return int(widths.pop())
    return fields.integer("intermediate_size")


def _block(fields: Fields, kind: ModelType) -> dict[str, Any]:
    block: dict[str, Any] = {
        "activation": _activation(fields, kind),
        "rotary_fraction": _rotary_fraction(fields),
        "attention_dropout": fields.fraction("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob"),
        "hidden_dropout": fields.fraction("hidden_dropout", "resid_pdrop", "residual_dropout", "hidden_dropout_prob"),
        "embedding_dropout": fields.fraction("embd_pdrop", "embedding_dropout"),
        "attn_logit_softcapping": fields.optional_number("attn_logit_softcapping"),
        "final_logit_softcapping": fields.optional_number("final_logit_softcapping"),
    }
    block |= {spec: fields.flag(field) for spec, field in kind.switches.items()}
    block |= kind.fixed
    if fields.flag("qk_layernorm", "use_qk_norm") and block.get("qk_norm", "none") == "none":
        block["qk_norm"] = "head"
    return block


def _activation(fields: Fields, kind: ModelType) -> str:
    found = fields.text(*kind.activation) or fields.text("hidden_act") or "silu"
    return kind.read_activations.get(found, found)


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


def _windows(fields: Fields, kind: ModelType, layers: int, mixers: set[str]) -> dict[str, Any]:
    """Return the sliding window; `layer_types` has one entry per layer."""
    window = (
        None if kind.window == "none" or fields.get("sliding_window") in (None, 0) else fields.integer("sliding_window")
    )
    if kind.window in ("late", "enabled", "alternate") and not fields.flag("use_sliding_window"):
        window = None
    return {"sliding_window": window, "layer_types": _layer_types(fields, kind, layers, window, mixers)}


def _layer_types(fields: Fields, kind: ModelType, layers: int, window: int | None, mixers: set[str]) -> tuple[str, ...]:
    written = fields.texts("layer_types")
    if written is not None and kind.window != "all":
        if len(written) != layers:
            raise fields.wrong("layer_types", f"has {len(written)} entries for {layers} layers")
        foreign = sorted(set(written) - _ATTENTION_LAYERS - mixers)
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


def _experts(fields: Fields, mixture: Mixture | None, model_type: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    experts = fields.count("num_local_experts", "num_experts", "n_routed_experts")
    if experts == 0:
        return {}
    layers = sizes["num_hidden_layers"]
    if experts * layers > _MOST_EXPERTS:
        raise fields.wrong(
            "num_experts", f"is {experts:,} in {layers} layers: no model has more than {_MOST_EXPERTS:,} in all"
        )
    if mixture is None:
        raise fields.wrong("model_type", f"'{model_type}' has {experts} experts, in a block that is not supported")
    own = fields.optional_integer("moe_intermediate_size") if mixture.own_width else None
    shared = fields.count("n_shared_experts") * (own or 0) or fields.count("shared_expert_intermediate_size")
    return {
        "num_experts": experts,
        "num_experts_per_tok": fields.integer("num_experts_per_tok", "top_k_experts", "num_experts_per_token"),
        "moe_intermediate_size": own or sizes["intermediate_size"],
        "shared_expert_intermediate_size": shared,
        "dense_layers": _dense_layers(fields, mixture, sizes["num_hidden_layers"]),
    }


def _dense_layers(fields: Fields, mixture: Mixture, layers: int) -> tuple[int, ...]:
    if mixture.dense_layers == "first":
        return tuple(range(min(layers, fields.count("first_k_dense_replace"))))
    if mixture.dense_layers == "none":
        return ()
    only = fields.integers("mlp_only_layers")
    step = fields.integer("decoder_sparse_step")
    return tuple(layer for layer in range(layers) if layer in only or (layer + 1) % step)


_DTYPES: Mapping[object, Literal["fp32", "bf16", "fp16"]] = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
}


def _stored_dtype(config: Mapping[str, Any], reads: str) -> Literal["", "fp32", "bf16", "fp16"]:
    """Return the type of the checkpoint's weights; encoders are stored in fp32 unless the file says otherwise."""
    written = config.get("dtype") or config.get("torch_dtype")
    if written is None:
        return "" if reads == "decoder" else "fp32"
    return _DTYPES.get(str(written), "")


def _quantization(config: Mapping[str, Any], source: str) -> str | None:
    stored = Fields(config, {}, source).mapping("quantization_config")
    method = stored.get("quant_method")
    if method == "bitsandbytes":
        return "bitsandbytes_4bit" if stored.get("load_in_4bit") else "bitsandbytes_8bit"
    return str(method) if method else None
