"""PaddleOCR-VL's tower. Parameters as transformers 5.23 has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.families.config_fields import Fields
from vramwise.families.towers.parts import Maker, Part, block_of, encoder, found, layers, linear, norm

_SIZES = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "image_size": 384, "patch_size": 14}


def _paddleocr(outer: Fields, text_hidden: int) -> dict[str, Any]:
    fields = block_of(outer, "vision_config", {**_SIZES, "spatial_merge_size": 2})
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


TOWERS: dict[str, Maker] = {"paddleocr_vl": _paddleocr}
