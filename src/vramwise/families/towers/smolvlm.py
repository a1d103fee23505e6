"""SmolVLM's and Idefics 3's tower. Parameters as transformers 5.22 has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.families.config_fields import Fields
from vramwise.families.towers.parts import Maker, Part, block_of, encoder, found, layers, linear, norm


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


TOWERS: dict[str, Maker] = dict.fromkeys(("smolvlm", "idefics3"), _smolvlm)
