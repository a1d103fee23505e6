"""InternVL's tower. Parameters as transformers 5.22 has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.models.families.config_fields import Fields
from vramwise.models.families.towers.parts import Maker, Part, block_of, found, layers, linear, norm, two_layers


def _square(value: object, fields: Fields, name: str) -> int:
    """Return the side of a square, which the file gives as one number or as two."""
    if isinstance(value, list | tuple) and value:
        return int(fields.integers(name)[0])
    return fields.integer(name)


def _internvl(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "image_size": 448}
    fields = block_of(outer, "vision_config", {**sizes, "patch_size": 14})
    ratio = outer.optional_number("downsample_ratio") or 0.5

    def parts() -> Iterator[Part]:
        hidden, inner, tower = fields.integer("hidden_size"), fields.integer("intermediate_size"), "model.vision_tower"
        patch = _square(fields.get("patch_size"), fields, "patch_size")
        side = _square(fields.get("image_size"), fields, "image_size") // patch
        bias = fields.flag("attention_bias")
        yield f"{tower}.embeddings.cls_token", (1, 1, hidden), "other"
        yield f"{tower}.embeddings.position_embeddings", (1, side * side + 1, hidden), "other"
        yield f"{tower}.embeddings.patch_embeddings.projection.weight", (hidden, 3, patch, patch), "other"
        yield f"{tower}.embeddings.patch_embeddings.projection.bias", (hidden,), "other"
        for layer in layers(fields, "num_hidden_layers"):
            name = f"{tower}.encoder.layer.{layer}"
            yield f"{name}.lambda_1", (hidden,), "other"
            yield f"{name}.lambda_2", (hidden,), "other"
            for letter in "qkv":
                yield from linear(f"{name}.attention.{letter}_proj", hidden, hidden, bias)
            yield from linear(f"{name}.attention.projection_layer", hidden, hidden)
            if fields.flag("use_qk_norm"):
                yield from norm(f"{name}.attention.q_norm", hidden, False)
                yield from norm(f"{name}.attention.k_norm", hidden, False)
            yield from two_layers(f"{name}.mlp", hidden, inner)
            yield from norm(f"{name}.layernorm_before", hidden)
            yield from norm(f"{name}.layernorm_after", hidden)
        merged = hidden * int(1 / ratio) ** 2
        yield from norm("model.multi_modal_projector.layer_norm", merged)
        yield from linear("model.multi_modal_projector.linear_1", merged, text_hidden)
        yield from linear("model.multi_modal_projector.linear_2", text_hidden, text_hidden)

    return found(parts())


TOWERS: dict[str, Maker] = {"internvl": _internvl}
