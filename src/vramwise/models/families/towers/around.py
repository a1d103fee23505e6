"""Finds the tower of a multimodal model: in a module of this folder by model_type, or among the common encoders.

The common ones are here: SigLIP, CLIP and Pixtral towers, with the projectors of Gemma 3, LLaVA and Mistral 3
(transformers 5.22).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from vramwise.models.families import towers
from vramwise.models.families.config_fields import Fields
from vramwise.models.families.towers.parts import Maker, Part, encoder, gated_layers, layers, linear, norm, pooling_head


def around(config: Mapping[str, Any], *, text_hidden: int, source: str) -> dict[str, Any]:
    """Return the ModelSpec fields about everything except the text model."""
    outer = Fields(config, {"num_channels": 3}, source)
    vision = outer.mapping("vision_config")
    maker = _makers().get(outer.text("model_type") or "")
    if maker is not None:
        return maker(outer, text_hidden)
    if not vision:
        missing = "audio_config" if outer.mapping("audio_config") else ""
        return {"text_part": "language_model", "left_out": missing} if missing else {}
    tower_type = Fields(vision, {}, f"{source} (vision_config)").text("model_type") or ""
    model_type = outer.text("model_type") or ""
    if tower_type not in _DEFAULTS or model_type not in _PROJECTED:
        return {"text_part": "language_model", "left_out": f"vision_config ({tower_type or model_type})"}
    fields = Fields(vision, _DEFAULTS[tower_type], f"{source} (vision_config)")
    parts = [*_ENCODERS[tower_type](fields), *_projector(outer, fields, model_type, text_hidden)]
    return {
        "text_part": "language_model",
        "tower": tuple((f"model.{name}", shape, kind) for name, shape, kind in parts),
    }


@cache
def _makers() -> dict[str, Maker]:
    """Return the towers of every module in this folder, by the model_type of the whole model."""
    modules = [import_module(f"{towers.__name__}.{found.name}") for found in iter_modules(towers.__path__)]
    return {name: maker for module in modules for name, maker in getattr(module, "TOWERS", {}).items()}


_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "image_size", "patch_size")
_DEFAULTS = {
    "siglip_vision_model": dict(zip(_SIZES, (768, 3072, 12, 224, 16), strict=True)),
    "clip_vision_model": dict(zip(_SIZES, (768, 3072, 12, 224, 32), strict=True)),
    "pixtral": dict(zip(_SIZES, (1024, 4096, 24, 1024, 16), strict=True)),
}
# Multimodal types whose projector is known; others keep their text model under the same name.
_PROJECTED = ("gemma3", "llava", "mistral3")


def _patch(fields: Fields, name: str) -> Part:
    size = fields.integer("patch_size")
    return f"{name}.weight", (fields.integer("hidden_size"), 3, size, size), "other"


def _positions(fields: Fields) -> int:
    side: int = fields.integer("image_size") // fields.integer("patch_size")
    return side * side


def _siglip(fields: Fields) -> Iterator[Part]:
    hidden, inner = fields.integer("hidden_size"), fields.integer("intermediate_size")
    yield _patch(fields, "vision_tower.embeddings.patch_embedding")
    yield "vision_tower.embeddings.patch_embedding.bias", (hidden,), "other"
    yield "vision_tower.embeddings.position_embedding.weight", (_positions(fields), hidden), "embedding"
    for layer in layers(fields, "num_hidden_layers"):
        yield from encoder(f"vision_tower.encoder.layers.{layer}", hidden, inner, norm_first=True)
    yield from norm("vision_tower.post_layernorm", hidden)
    if fields.get("vision_use_head") is None or fields.flag("vision_use_head"):
        yield from pooling_head("vision_tower", hidden, inner)


def _clip(fields: Fields) -> Iterator[Part]:
    hidden, inner = fields.integer("hidden_size"), fields.integer("intermediate_size")
    yield "vision_tower.embeddings.class_embedding", (hidden,), "other"
    yield _patch(fields, "vision_tower.embeddings.patch_embedding")
    yield "vision_tower.embeddings.position_embedding.weight", (_positions(fields) + 1, hidden), "embedding"
    yield from norm("vision_tower.pre_layrnorm", hidden)  # spelled so in transformers
    for layer in layers(fields, "num_hidden_layers"):
        yield from encoder(f"vision_tower.encoder.layers.{layer}", hidden, inner, norm_first=False)
    yield from norm("vision_tower.post_layernorm", hidden)


def _pixtral(fields: Fields) -> Iterator[Part]:
    hidden, inner = fields.integer("hidden_size"), fields.integer("intermediate_size")
    yield _patch(fields, "vision_tower.patch_conv")
    yield "vision_tower.ln_pre.weight", (hidden,), "norm"
    for layer in layers(fields, "num_hidden_layers"):
        name = f"vision_tower.transformer.layers.{layer}"
        yield f"{name}.attention_norm.weight", (hidden,), "norm"
        yield from gated_layers(f"{name}.feed_forward", hidden, inner, bias=False)
        for letter in "kvqo":
            yield from linear(f"{name}.attention.{letter}_proj", hidden, hidden, False)
        yield f"{name}.ffn_norm.weight", (hidden,), "norm"


_ENCODERS = {"siglip_vision_model": _siglip, "clip_vision_model": _clip, "pixtral": _pixtral}


def _projector(outer: Fields, vision: Fields, model_type: str, text_hidden: int) -> Iterator[Part]:
    """Yield the _projector, which maps the tower's output to the width of the text model."""
    hidden = vision.integer("hidden_size")
    if model_type == "gemma3":
        yield "multi_modal_projector.mm_input_projection_weight", (hidden, text_hidden), "other"
        yield "multi_modal_projector.mm_soft_emb_norm.weight", (hidden,), "norm"
        return
    bias = (
        outer.flag("multimodal_projector_bias")
        if outer.get("multimodal_projector_bias") is not None
        else model_type == "llava"
    )
    if model_type == "mistral3":
        merged = hidden * (outer.optional_integer("spatial_merge_size") or 2) ** 2
        yield "multi_modal_projector.norm.weight", (hidden,), "norm"
        yield from linear("multi_modal_projector.patch_merger.merging_layer", merged, hidden, False)
    chosen = outer.get("vision_feature_layer")
    inputs = hidden * (len(chosen) if isinstance(chosen, list) else 1)
    yield from linear("multi_modal_projector.linear_1", inputs, text_hidden, bias)
    yield from linear("multi_modal_projector.linear_2", text_hidden, text_hidden, bias)
