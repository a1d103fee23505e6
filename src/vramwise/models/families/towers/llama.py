"""The towers of Llama 3.2 Vision (mllama) and Llama 4. Parameters as transformers 5.22 has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.models.families.config_fields import Fields
from vramwise.models.families.towers.parts import Maker, Part, block_of, found, layers, linear, norm, two_layers


def _llama4(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34, "image_size": 448}
    outs = {"vision_output_dim": 7680, "projector_input_dim": 4096, "projector_output_dim": 4096}
    fields = block_of(outer, "vision_config", {**sizes, **outs, "patch_size": 14, "pixel_shuffle_ratio": 0.5})

    def parts() -> Iterator[Part]:
        hidden, inner, tower = fields.integer("hidden_size"), fields.integer("intermediate_size"), "vision_model"
        patch = fields.integer("patch_size")
        side = fields.integer("image_size") // patch
        yield f"{tower}.class_embedding", (hidden,), "other"
        yield f"{tower}.positional_embedding_vlm", (side * side + 1, hidden), "other"
        yield from linear(f"{tower}.patch_embedding.linear", 3 * patch * patch, hidden, False)
        yield from (*norm(f"{tower}.layernorm_pre", hidden), *norm(f"{tower}.layernorm_post", hidden))
        for layer in layers(fields, "num_hidden_layers"):
            name = f"{tower}.model.layers.{layer}"
            for letter in "qkvo":
                yield from linear(f"{name}.self_attn.{letter}_proj", hidden, hidden)
            yield from two_layers(f"{name}.mlp", hidden, inner)
            yield from norm(f"{name}.input_layernorm", hidden)
            yield from norm(f"{name}.post_attention_layernorm", hidden)
        middle, out = fields.integer("projector_input_dim"), fields.integer("projector_output_dim")
        yield from linear(f"{tower}.vision_adapter.mlp.fc1", inner, middle, False)
        yield from linear(f"{tower}.vision_adapter.mlp.fc2", middle, out, False)
        yield from linear("multi_modal_projector.linear_1", fields.integer("vision_output_dim"), text_hidden, False)

    return found(parts(), part=".language_model")


def _mllama(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_global_layers": 8}
    outs = {"vision_output_dim": 7680, "image_size": 448, "patch_size": 14, "max_num_tiles": 4}
    fields = block_of(outer, "vision_config", {**sizes, **outs})
    hidden, inner, tower = fields.integer("hidden_size"), fields.integer("intermediate_size"), "model.vision_model"

    def layer(name: str, gated: bool) -> Iterator[Part]:
        if gated:
            yield f"{name}.gate_attn", (1,), "other"
            yield f"{name}.gate_ffn", (1,), "other"
        for letter in "qkvo":
            yield from linear(f"{name}.self_attn.{letter}_proj", hidden, hidden, False)
        yield from two_layers(f"{name}.mlp", hidden, inner)
        yield from norm(f"{name}.input_layernorm", hidden)
        yield from norm(f"{name}.post_attention_layernorm", hidden)

    def parts() -> Iterator[Part]:
        patch, tiles = fields.integer("patch_size"), fields.integer("max_num_tiles")
        places = (fields.integer("image_size") // patch) ** 2 + 1
        ratios = fields.get("supported_aspect_ratios")
        rows = (len(ratios) if isinstance(ratios, list) else 8) + 1
        yield f"{tower}.class_embedding", (hidden,), "other"
        yield f"{tower}.patch_embedding.weight", (hidden, 3, patch, patch), "other"
        yield f"{tower}.gated_positional_embedding.gate", (1,), "other"
        yield f"{tower}.gated_positional_embedding.embedding", (places, hidden), "other"
        table = (rows, tiles * places * hidden)
        yield f"{tower}.gated_positional_embedding.tile_embedding.weight", table, "embedding"
        for name in ("pre", "post"):
            yield f"{tower}.{name}_tile_positional_embedding.gate", (1,), "other"
            yield f"{tower}.{name}_tile_positional_embedding.embedding.weight", (rows, tiles * hidden), "embedding"
        yield from (*norm(f"{tower}.layernorm_pre", hidden), *norm(f"{tower}.layernorm_post", hidden))
        for number in layers(fields, "num_hidden_layers"):
            yield from layer(f"{tower}.transformer.layers.{number}", gated=False)
        for number in layers(fields, "num_global_layers"):
            yield from layer(f"{tower}.global_transformer.layers.{number}", gated=True)

    after = linear("model.multi_modal_projector", fields.integer("vision_output_dim"), text_hidden)
    return found(parts(), after)


TOWERS: dict[str, Maker] = {"llama4": _llama4, "mllama": _mllama}
