"""Towers like SigLIP's, with projectors of their own: SmolVLM and Idefics 3, LFM2-VL, PaddleOCR-VL.

Parameters as transformers 5.22 has them, PaddleOCR-VL's as 5.23.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.models.families.config_fields import Fields
from vramwise.models.families.towers.parts import (
    Maker,
    Part,
    block_of,
    encoder,
    found,
    layers,
    linear,
    norm,
    pooling_head,
)


def _smolvlm(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 12, "image_size": 224}
    fields = block_of(outer, "vision_config", {**sizes, "patch_size": 32})

    def parts() -> Iterator[Part]:
        hidden, inner, tower = fields.integer("hidden_size"), fields.integer("intermediate_size"), "model.vision_model"
        patch = fields.integer("patch_size")
        side = fields.integer("image_size") // patch
        yield f"{tower}.embeddings.patch_embedding.weight", (hidden, 3, patch, patch), "other"
        yield f"{tower}.embeddings.patch_embedding.bias", (hidden,), "other"
        yield f"{tower}.embeddings.position_embedding.weight", (side * side, hidden), "embedding"
        for layer in layers(fields, "num_hidden_layers"):
            yield from encoder(f"{tower}.encoder.layers.{layer}", hidden, inner, norm_first=False)
        yield from norm(f"{tower}.post_layernorm", hidden)
        merged = hidden * (outer.optional_integer("scale_factor") or 2) ** 2
        yield from linear("model.connector.modality_projection.proj", merged, text_hidden, False)

    return found(parts(), part="text_model")


def _lfm2_vl(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_patches": 256}
    fields = block_of(outer, "vision_config", {**sizes, "patch_size": 16, "num_channels": 3, "vision_use_head": True})
    own = {
        "downsample_factor": 2,
        "projector_hidden_size": 2560,
        "projector_bias": True,
        "projector_use_layernorm": True,
    }
    whole = Fields({key: outer.get(key) for key in own if outer.get(key) is not None}, own, outer.source)

    def parts() -> Iterator[Part]:
        hidden, inner, tower = fields.integer("hidden_size"), fields.integer("intermediate_size"), "model.vision_tower"
        patch = fields.integer("num_channels") * fields.integer("patch_size") ** 2
        yield from linear(f"{tower}.embeddings.patch_embedding", patch, hidden)
        yield f"{tower}.embeddings.position_embedding.weight", (fields.integer("num_patches"), hidden), "embedding"
        for layer in layers(fields, "num_hidden_layers"):
            yield from encoder(f"{tower}.encoder.layers.{layer}", hidden, inner, norm_first=True)
        yield from norm(f"{tower}.post_layernorm", hidden)
        if fields.flag("vision_use_head"):
            yield from pooling_head(tower, hidden, inner)
        merged, wide = hidden * whole.integer("downsample_factor") ** 2, whole.integer("projector_hidden_size")
        if whole.flag("projector_use_layernorm"):
            yield from norm("model.multi_modal_projector.layer_norm", merged)
        yield from linear("model.multi_modal_projector.linear_1", merged, wide, whole.flag("projector_bias"))
        yield from linear("model.multi_modal_projector.linear_2", wide, text_hidden, whole.flag("projector_bias"))

    return found(parts())


_PADDLEOCR_SIZES = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "image_size": 384,
    "patch_size": 14,
}


def _paddleocr(outer: Fields, text_hidden: int) -> dict[str, Any]:
    fields = block_of(outer, "vision_config", {**_PADDLEOCR_SIZES, "spatial_merge_size": 2})
    hidden, inner = fields.integer("hidden_size"), fields.integer("intermediate_size")
    patch = fields.integer("patch_size")
    side = fields.integer("image_size") // patch
    merged = hidden * fields.integer("spatial_merge_size") ** 2
    tower = "model.visual.vision_model"

    def before() -> Iterator[Part]:
        yield f"{tower}.embeddings.patch_embedding.weight", (hidden, 3, patch, patch), "other"
        yield f"{tower}.embeddings.patch_embedding.bias", (hidden,), "other"
        yield f"{tower}.embeddings.position_embedding.weight", (side * side, hidden), "embedding"
        for layer in layers(fields, "num_hidden_layers"):
            yield from encoder(f"{tower}.encoder.layers.{layer}", hidden, inner, norm_first=True)
        yield from norm(f"{tower}.post_layernorm", hidden)

    def after() -> Iterator[Part]:
        yield from norm("model.projector.pre_norm", hidden)
        yield from linear("model.projector.linear_1", merged, merged)
        yield from linear("model.projector.linear_2", merged, text_hidden)

    return found(before(), after())


TOWERS: dict[str, Maker] = {
    **dict.fromkeys(("smolvlm", "idefics3"), _smolvlm),
    "lfm2_vl": _lfm2_vl,
    "paddleocr_vl": _paddleocr,
}
