"""Gemma 4's towers; the unified model has projections instead. Parameters as transformers 5.22 has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.models.families.config_fields import Fields
from vramwise.models.families.towers.parts import Maker, Part, block_of, found, gated_layers, layers, linear, norm


def _gemma4(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16, "num_attention_heads": 12}
    own = {"num_key_value_heads": 12, "head_dim": 64, "patch_size": 16, "position_embedding_size": 10240}
    fields = block_of(outer, "vision_config", {**sizes, **own})
    audio = "audio_config (gemma4_audio)" if outer.mapping("audio_config") else ""
    if not outer.mapping("vision_config"):
        return found(iter(()), left_out=audio)
    hidden, inner, tower = fields.integer("hidden_size"), fields.integer("intermediate_size"), "model.vision_tower"

    def parts() -> Iterator[Part]:
        table = (2, fields.integer("position_embedding_size"), hidden)
        width = fields.integer("head_dim")
        queries, keys = (width * fields.integer(f"num_{key}_heads") for key in ("attention", "key_value"))
        yield f"{tower}.patch_embedder.position_embedding_table", table, "other"
        yield from linear(f"{tower}.patch_embedder.input_proj", 3 * fields.integer("patch_size") ** 2, hidden, False)
        for layer in layers(fields, "num_hidden_layers"):
            name = f"{tower}.encoder.layers.{layer}"
            yield from linear(f"{name}.self_attn.q_proj.linear", hidden, queries, False)
            yield from linear(f"{name}.self_attn.k_proj.linear", hidden, keys, False)
            yield from linear(f"{name}.self_attn.v_proj.linear", hidden, keys, False)
            yield from linear(f"{name}.self_attn.o_proj.linear", queries, hidden, False)
            yield from (
                *norm(f"{name}.self_attn.q_norm", width, False),
                *norm(f"{name}.self_attn.k_norm", width, False),
            )
            yield from gated_layers(f"{name}.mlp", hidden, inner, bias=False, inside=".linear")
            for place in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
                yield from norm(f"{name}.{place}_layernorm", hidden, False)

    after = linear("model.embed_vision.embedding_projection", hidden, text_hidden, False)
    return found(parts(), after, left_out=audio)


def _gemma4_unified(outer: Fields, text_hidden: int) -> dict[str, Any]:
    """No towers: images and audio have one projection each."""
    own = {"mm_embed_dim": 3840, "mm_posemb_size": 1120, "patch_size": 16, "pooling_kernel_size": 3}
    fields = block_of(outer, "vision_config", {**own, "output_proj_dims": 3840})
    sound = block_of(outer, "audio_config", {"audio_embed_dim": 640})

    def parts() -> Iterator[Part]:
        if outer.mapping("vision_config"):
            wide, start = fields.integer("mm_embed_dim"), "model.embed_vision"
            patch = 3 * (fields.integer("patch_size") * fields.integer("pooling_kernel_size")) ** 2
            yield f"{start}.pos_embedding", (fields.integer("mm_posemb_size"), 2, wide), "other"
            yield from norm(f"{start}.patch_ln1", patch)
            yield from linear(f"{start}.patch_dense", patch, wide)
            yield from (*norm(f"{start}.patch_ln2", wide), *norm(f"{start}.pos_norm", wide))
            out = fields.integer("output_proj_dims")
            yield from linear(f"{start}.multimodal_embedder.embedding_projection", out, text_hidden, False)
        if outer.mapping("audio_config"):
            width = sound.integer("audio_embed_dim")
            yield from linear("model.embed_audio.embedding_projection", width, text_hidden, False)

    return found(iter(()), parts())


TOWERS: dict[str, Maker] = {"gemma4": _gemma4, "gemma4_unified": _gemma4_unified}
