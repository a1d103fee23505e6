"""The towers of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5, and of GLM-4V and GLM-4.6V, whose patches are the same.

Parameters as transformers 5.22 has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.models.families.config_fields import Fields
from vramwise.models.families.towers.parts import (
    Maker,
    Part,
    block_of,
    found,
    gated_layers,
    layers,
    linear,
    norm,
    two_layers,
)


def _patch_of(fields: Fields, hidden: int, bias: bool) -> Iterator[Part]:
    """Yield the convolution that turns frames into patches."""
    size, depth = fields.integer("patch_size"), fields.integer("temporal_patch_size")
    channels = fields.integer("in_channels", "in_chans")
    yield "model.visual.patch_embed.proj.weight", (hidden, channels, depth, size, size), "other"
    if bias:
        yield "model.visual.patch_embed.proj.bias", (hidden,), "other"


_PATCH = {"patch_size": 14, "temporal_patch_size": 2, "in_channels": 3, "spatial_merge_size": 2, "depth": 32}


def _qwen2_vl(outer: Fields, text_hidden: int) -> dict[str, Any]:
    fields = block_of(outer, "vision_config", {**_PATCH, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4})

    def parts() -> Iterator[Part]:
        hidden = fields.integer("embed_dim")
        inner, merged = hidden * fields.integer("mlp_ratio"), hidden * fields.integer("spatial_merge_size") ** 2
        yield from _patch_of(fields, hidden, bias=False)
        for layer in layers(fields, "depth"):
            name = f"model.visual.blocks.{layer}"
            yield from (*norm(f"{name}.norm1", hidden), *norm(f"{name}.norm2", hidden))
            yield from linear(f"{name}.attn.qkv", hidden, 3 * hidden)
            yield from linear(f"{name}.attn.proj", hidden, hidden)
            yield from two_layers(f"{name}.mlp", hidden, inner)
        yield from norm("model.visual.merger.ln_q", hidden)
        yield from linear("model.visual.merger.mlp.0", merged, merged)
        yield from linear("model.visual.merger.mlp.2", merged, fields.integer("hidden_size"))

    return found(parts())


def _qwen2_5_vl(outer: Fields, text_hidden: int) -> dict[str, Any]:
    defaults = {**_PATCH, "hidden_size": 3584, "intermediate_size": 3420, "out_hidden_size": 3584}
    fields = block_of(outer, "vision_config", defaults)

    def parts() -> Iterator[Part]:
        hidden, inner = fields.integer("hidden_size"), fields.integer("intermediate_size")
        merged = hidden * fields.integer("spatial_merge_size") ** 2
        yield from _patch_of(fields, hidden, bias=False)
        for layer in layers(fields, "depth"):
            name = f"model.visual.blocks.{layer}"
            yield from (*norm(f"{name}.norm1", hidden, False), *norm(f"{name}.norm2", hidden, False))
            yield from linear(f"{name}.attn.qkv", hidden, 3 * hidden)
            yield from linear(f"{name}.attn.proj", hidden, hidden)
            yield from gated_layers(f"{name}.mlp", hidden, inner)
        yield from norm("model.visual.merger.ln_q", hidden, False)
        yield from linear("model.visual.merger.mlp.0", merged, merged)
        yield from linear("model.visual.merger.mlp.2", merged, fields.integer("out_hidden_size"))

    return found(parts())


def _qwen3_vl(outer: Fields, text_hidden: int) -> dict[str, Any]:
    """Return tower of Qwen3-VL, which also passes on intermediate results (deepstack). Qwen3.5's has no deepstack."""
    sizes = {"hidden_size": 1152, "intermediate_size": 4304, "out_hidden_size": 3584, "num_position_embeddings": 2304}
    stacked = [8, 16, 24] if (outer.text("model_type") or "").startswith("qwen3_vl") else []
    own = {"patch_size": 16, "depth": 27, "deepstack_visual_indexes": stacked}
    fields = block_of(outer, "vision_config", {**_PATCH, **sizes, **own})

    def merger(name: str, wide_norm: bool) -> Iterator[Part]:
        hidden = fields.integer("hidden_size")
        merged = hidden * fields.integer("spatial_merge_size") ** 2
        yield from norm(f"{name}.norm", merged if wide_norm else hidden)
        yield from linear(f"{name}.linear_fc1", merged, merged)
        yield from linear(f"{name}.linear_fc2", merged, fields.integer("out_hidden_size"))

    def parts() -> Iterator[Part]:
        hidden, inner = fields.integer("hidden_size"), fields.integer("intermediate_size")
        yield from _patch_of(fields, hidden, bias=True)
        yield "model.visual.pos_embed.weight", (fields.integer("num_position_embeddings"), hidden), "embedding"
        for layer in layers(fields, "depth"):
            name = f"model.visual.blocks.{layer}"
            yield from (*norm(f"{name}.norm1", hidden), *norm(f"{name}.norm2", hidden))
            yield from linear(f"{name}.attn.qkv", hidden, 3 * hidden)
            yield from linear(f"{name}.attn.proj", hidden, hidden)
            yield from linear(f"{name}.mlp.linear_fc1", hidden, inner)
            yield from linear(f"{name}.mlp.linear_fc2", inner, hidden)
        yield from merger("model.visual.merger", wide_norm=False)
        for number in range(len(fields.integers("deepstack_visual_indexes")) if stacked else 0):
            yield from merger(f"model.visual.deepstack_merger_list.{number}", wide_norm=True)

    return found(parts())


def _glm4v(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 1536, "intermediate_size": 13696, "out_hidden_size": 4096, "image_size": 336, "depth": 24}
    fields = block_of(outer, "vision_config", {**_PATCH, **sizes})

    def parts() -> Iterator[Part]:
        hidden, out, inner = (fields.integer(key) for key in ("hidden_size", "out_hidden_size", "intermediate_size"))
        bias, merge = fields.flag("attention_bias"), fields.integer("spatial_merge_size")
        side = fields.integer("image_size") // fields.integer("patch_size")
        yield "model.visual.embeddings.position_embedding.weight", (side * side, hidden), "embedding"
        yield from _patch_of(fields, hidden, bias=True)
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


TOWERS: dict[str, Maker] = {
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), _qwen3_vl),
    **dict.fromkeys(("glm4v", "glm46v"), _glm4v),
}
