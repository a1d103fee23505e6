"""GLM-4V's and GLM-4.6V's tower. Parameters as transformers 5.22 has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.families.config_fields import Fields
from vramwise.families.towers.parts import Maker, Part, block_of, found, gated_layers, layers, linear, norm
from vramwise.families.towers.qwen import PATCH, patch_of


def _glm4v(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 1536, "intermediate_size": 13696, "out_hidden_size": 4096, "image_size": 336, "depth": 24}
    fields = block_of(outer, "vision_config", {**PATCH, **sizes})

    def parts() -> Iterator[Part]:
        hidden, out, inner = (fields.integer(key) for key in ("hidden_size", "out_hidden_size", "intermediate_size"))
        bias, merge = fields.flag("attention_bias"), fields.integer("spatial_merge_size")
        side = fields.integer("image_size") // fields.integer("patch_size")
        yield "model.visual.embeddings.position_embedding.weight", (side * side, hidden), "embedding"
        yield from patch_of(fields, hidden, bias=True)
        for layer in layers(fields, "depth"):
            name = f"model.visual.blocks.{layer}"
            yield from (*norm(f"{name}.norm1", hidden, False), *norm(f"{name}.norm2", hidden, False))
            yield from linear(f"{name}.attn.qkv", hidden, 3 * hidden, bias)
            yield from linear(f"{name}.attn.proj", hidden, hidden, False)
            yield from gated_layers(f"{name}.mlp", hidden, out, bias=False)
        yield from linear("model.visual.merger.proj", out, out, False)
        yield from norm("model.visual.merger.post_projection_norm", out)
        yield from gated_layers("model.visual.merger", out, inner, bias=False)
        yield from norm("model.visual.post_conv_layernorm", hidden, False)
        yield "model.visual.downsample.weight", (out, hidden, merge, merge), "other"
        yield "model.visual.downsample.bias", (out,), "other"
        yield from norm("model.visual.post_layernorm", hidden, False)

    return found(parts())


TOWERS: dict[str, Maker] = dict.fromkeys(("glm4v", "glm46v"), _glm4v)
