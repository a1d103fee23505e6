"""More vision and audio towers: of Qwen, GLM, InternVL, SmolVLM, LFM2, Llama 3.2 and 4, Gemma 4 and Voxtral.

Parameters as transformers 5.22 has them, by the model_type of the whole model. What is not known of one is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vramwise.families.config_fields import MANY, Fields

# name, shape, kind: as in `families.parts.Parameter`
Part = tuple[str, tuple[int, ...], str]
Maker = Callable[[Fields, int], dict[str, Any]]


def _linear(name: str, inputs: int, outputs: int, bias: bool = True) -> Iterator[Part]:
    yield f"{name}.weight", (outputs, inputs), "linear"
    if bias:
        yield f"{name}.bias", (outputs,), "bias"


def _norm(name: str, size: int, bias: bool = True) -> Iterator[Part]:
    yield f"{name}.weight", (size,), "norm"
    if bias:
        yield f"{name}.bias", (size,), "norm"


def _inner(outer: Fields, name: str, defaults: Mapping[str, Any]) -> Fields:
    return Fields(outer.mapping(name), defaults, f"{outer.source} ({name})")


def _found(
    before: Iterator[Part], after: Iterator[Part] | None = None, part: str = "language_model", left_out: str = ""
) -> dict[str, Any]:
    return {"text_part": part, "tower": tuple(before), "after_text": tuple(after or ()), "left_out": left_out}


def _layers(fields: Fields, *names: str) -> range:
    return range(fields.integer(*names, most=MANY))


def _qwen_patch(fields: Fields, hidden: int, bias: bool) -> Iterator[Part]:
    size, depth = fields.integer("patch_size"), fields.integer("temporal_patch_size")
    channels = fields.integer("in_channels", "in_chans")
    yield "model.visual.patch_embed.proj.weight", (hidden, channels, depth, size, size), "other"
    if bias:
        yield "model.visual.patch_embed.proj.bias", (hidden,), "other"


_QWEN_PATCH = {"patch_size": 14, "temporal_patch_size": 2, "in_channels": 3, "spatial_merge_size": 2, "depth": 32}


def _qwen2_vl(outer: Fields, text_hidden: int) -> dict[str, Any]:
    fields = _inner(outer, "vision_config", {**_QWEN_PATCH, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4})

    def parts() -> Iterator[Part]:
        hidden = fields.integer("embed_dim")
        inner, merged = hidden * fields.integer("mlp_ratio"), hidden * fields.integer("spatial_merge_size") ** 2
        yield from _qwen_patch(fields, hidden, bias=False)
        for layer in _layers(fields, "depth"):
            name = f"model.visual.blocks.{layer}"
            yield from (*_norm(f"{name}.norm1", hidden), *_norm(f"{name}.norm2", hidden))
            yield from _linear(f"{name}.attn.qkv", hidden, 3 * hidden)
            yield from _linear(f"{name}.attn.proj", hidden, hidden)
            yield from _linear(f"{name}.mlp.fc1", hidden, inner)
            yield from _linear(f"{name}.mlp.fc2", inner, hidden)
        yield from _norm("model.visual.merger.ln_q", hidden)
        yield from _linear("model.visual.merger.mlp.0", merged, merged)
        yield from _linear("model.visual.merger.mlp.2", merged, fields.integer("hidden_size"))

    return _found(parts())


def _qwen2_5_vl(outer: Fields, text_hidden: int) -> dict[str, Any]:
    defaults = {**_QWEN_PATCH, "hidden_size": 3584, "intermediate_size": 3420, "out_hidden_size": 3584}
    fields = _inner(outer, "vision_config", defaults)

    def parts() -> Iterator[Part]:
        hidden, inner = fields.integer("hidden_size"), fields.integer("intermediate_size")
        merged = hidden * fields.integer("spatial_merge_size") ** 2
        yield from _qwen_patch(fields, hidden, bias=False)
        for layer in _layers(fields, "depth"):
            name = f"model.visual.blocks.{layer}"
            yield from (*_norm(f"{name}.norm1", hidden, False), *_norm(f"{name}.norm2", hidden, False))
            yield from _linear(f"{name}.attn.qkv", hidden, 3 * hidden)
            yield from _linear(f"{name}.attn.proj", hidden, hidden)
            yield from _linear(f"{name}.mlp.gate_proj", hidden, inner)
            yield from _linear(f"{name}.mlp.up_proj", hidden, inner)
            yield from _linear(f"{name}.mlp.down_proj", inner, hidden)
        yield from _norm("model.visual.merger.ln_q", hidden, False)
        yield from _linear("model.visual.merger.mlp.0", merged, merged)
        yield from _linear("model.visual.merger.mlp.2", merged, fields.integer("out_hidden_size"))

    return _found(parts())


def _qwen3_vl(outer: Fields, text_hidden: int) -> dict[str, Any]:
    """Qwen3-VL's, which also hands on what it saw half-way (deepstack); Qwen3.5's is the same without that."""
    sizes = {"hidden_size": 1152, "intermediate_size": 4304, "out_hidden_size": 3584, "num_position_embeddings": 2304}
    stacked = [8, 16, 24] if (outer.text("model_type") or "").startswith("qwen3_vl") else []
    own = {"patch_size": 16, "depth": 27, "deepstack_visual_indexes": stacked}
    fields = _inner(outer, "vision_config", {**_QWEN_PATCH, **sizes, **own})

    def merger(name: str, wide_norm: bool) -> Iterator[Part]:
        hidden = fields.integer("hidden_size")
        merged = hidden * fields.integer("spatial_merge_size") ** 2
        yield from _norm(f"{name}.norm", merged if wide_norm else hidden)
        yield from _linear(f"{name}.linear_fc1", merged, merged)
        yield from _linear(f"{name}.linear_fc2", merged, fields.integer("out_hidden_size"))

    def parts() -> Iterator[Part]:
        hidden, inner = fields.integer("hidden_size"), fields.integer("intermediate_size")
        yield from _qwen_patch(fields, hidden, bias=True)
        yield "model.visual.pos_embed.weight", (fields.integer("num_position_embeddings"), hidden), "embedding"
        for layer in _layers(fields, "depth"):
            name = f"model.visual.blocks.{layer}"
            yield from (*_norm(f"{name}.norm1", hidden), *_norm(f"{name}.norm2", hidden))
            yield from _linear(f"{name}.attn.qkv", hidden, 3 * hidden)
            yield from _linear(f"{name}.attn.proj", hidden, hidden)
            yield from _linear(f"{name}.mlp.linear_fc1", hidden, inner)
            yield from _linear(f"{name}.mlp.linear_fc2", inner, hidden)
        yield from merger("model.visual.merger", wide_norm=False)
        for number in range(len(fields.integers("deepstack_visual_indexes")) if stacked else 0):
            yield from merger(f"model.visual.deepstack_merger_list.{number}", wide_norm=True)

    return _found(parts())


def _glm4v(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 1536, "intermediate_size": 13696, "out_hidden_size": 4096, "image_size": 336, "depth": 24}
    fields = _inner(outer, "vision_config", {**_QWEN_PATCH, **sizes})

    def parts() -> Iterator[Part]:
        hidden, out, inner = (fields.integer(key) for key in ("hidden_size", "out_hidden_size", "intermediate_size"))
        bias, merge = fields.flag("attention_bias"), fields.integer("spatial_merge_size")
        side = fields.integer("image_size") // fields.integer("patch_size")
        yield "model.visual.embeddings.position_embedding.weight", (side * side, hidden), "embedding"
        yield from _qwen_patch(fields, hidden, bias=True)
        for layer in _layers(fields, "depth"):
            name = f"model.visual.blocks.{layer}"
            yield from (*_norm(f"{name}.norm1", hidden, False), *_norm(f"{name}.norm2", hidden, False))
            yield from _linear(f"{name}.attn.qkv", hidden, 3 * hidden, bias)
            yield from _linear(f"{name}.attn.proj", hidden, hidden, False)
            yield from _linear(f"{name}.mlp.gate_proj", hidden, out, False)
            yield from _linear(f"{name}.mlp.up_proj", hidden, out, False)
            yield from _linear(f"{name}.mlp.down_proj", out, hidden, False)
        yield from _linear("model.visual.merger.proj", out, out, False)
        yield from _norm("model.visual.merger.post_projection_norm", out)
        yield from _linear("model.visual.merger.gate_proj", out, inner, False)
        yield from _linear("model.visual.merger.up_proj", out, inner, False)
        yield from _linear("model.visual.merger.down_proj", inner, out, False)
        yield from _norm("model.visual.post_conv_layernorm", hidden, False)
        yield "model.visual.downsample.weight", (out, hidden, merge, merge), "other"
        yield "model.visual.downsample.bias", (out,), "other"
        yield from _norm("model.visual.post_layernorm", hidden, False)

    return _found(parts())


def _square(value: object, fields: Fields, name: str) -> int:
    """A side, written as a number or as two."""
    if isinstance(value, list | tuple) and value:
        return int(fields.integers(name)[0])
    return fields.integer(name)


def _internvl(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "image_size": 448}
    fields = _inner(outer, "vision_config", {**sizes, "patch_size": 14})
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
        for layer in _layers(fields, "num_hidden_layers"):
            name = f"{tower}.encoder.layer.{layer}"
            yield f"{name}.lambda_1", (hidden,), "other"
            yield f"{name}.lambda_2", (hidden,), "other"
            for letter in "qkv":
                yield from _linear(f"{name}.attention.{letter}_proj", hidden, hidden, bias)
            yield from _linear(f"{name}.attention.projection_layer", hidden, hidden)
            if fields.flag("use_qk_norm"):
                yield from _norm(f"{name}.attention.q_norm", hidden, False)
                yield from _norm(f"{name}.attention.k_norm", hidden, False)
            yield from _linear(f"{name}.mlp.fc1", hidden, inner)
            yield from _linear(f"{name}.mlp.fc2", inner, hidden)
            yield from _norm(f"{name}.layernorm_before", hidden)
            yield from _norm(f"{name}.layernorm_after", hidden)
        merged = hidden * int(1 / ratio) ** 2
        yield from _norm("model.multi_modal_projector.layer_norm", merged)
        yield from _linear("model.multi_modal_projector.linear_1", merged, text_hidden)
        yield from _linear("model.multi_modal_projector.linear_2", text_hidden, text_hidden)

    return _found(parts())


def _encoder(name: str, hidden: int, inner: int, norm_first: bool) -> Iterator[Part]:
    """A layer of SigLIP's encoder."""
    if norm_first:
        yield from _norm(f"{name}.layer_norm1", hidden)
    for projection in ("k_proj", "v_proj", "q_proj", "out_proj"):
        yield from _linear(f"{name}.self_attn.{projection}", hidden, hidden)
    yield from _norm(f"{name}.layer_norm{2 if norm_first else 1}", hidden)
    yield from _linear(f"{name}.mlp.fc1", hidden, inner)
    yield from _linear(f"{name}.mlp.fc2", inner, hidden)
    if not norm_first:
        yield from _norm(f"{name}.layer_norm2", hidden)


def _smolvlm(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 12, "image_size": 224}
    fields = _inner(outer, "vision_config", {**sizes, "patch_size": 32})

    def parts() -> Iterator[Part]:
        hidden, inner, tower = fields.integer("hidden_size"), fields.integer("intermediate_size"), "model.vision_model"
        patch = fields.integer("patch_size")
        side = fields.integer("image_size") // patch
        yield f"{tower}.embeddings.patch_embedding.weight", (hidden, 3, patch, patch), "other"
        yield f"{tower}.embeddings.patch_embedding.bias", (hidden,), "other"
        yield f"{tower}.embeddings.position_embedding.weight", (side * side, hidden), "embedding"
        for layer in _layers(fields, "num_hidden_layers"):
            yield from _encoder(f"{tower}.encoder.layers.{layer}", hidden, inner, norm_first=False)
        yield from _norm(f"{tower}.post_layernorm", hidden)
        merged = hidden * (outer.optional_integer("scale_factor") or 2) ** 2
        yield from _linear("model.connector.modality_projection.proj", merged, text_hidden, False)

    return _found(parts(), part="text_model")


def _lfm2_vl(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_patches": 256}
    fields = _inner(outer, "vision_config", {**sizes, "patch_size": 16, "num_channels": 3, "vision_use_head": True})
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
        yield from _linear(f"{tower}.embeddings.patch_embedding", patch, hidden)
        yield f"{tower}.embeddings.position_embedding.weight", (fields.integer("num_patches"), hidden), "embedding"
        for layer in _layers(fields, "num_hidden_layers"):
            yield from _encoder(f"{tower}.encoder.layers.{layer}", hidden, inner, norm_first=True)
        yield from _norm(f"{tower}.post_layernorm", hidden)
        if fields.flag("vision_use_head"):
            yield from _pooling_head(tower, hidden, inner)
        merged, wide = hidden * whole.integer("downsample_factor") ** 2, whole.integer("projector_hidden_size")
        if whole.flag("projector_use_layernorm"):
            yield from _norm("model.multi_modal_projector.layer_norm", merged)
        yield from _linear("model.multi_modal_projector.linear_1", merged, wide, whole.flag("projector_bias"))
        yield from _linear("model.multi_modal_projector.linear_2", wide, text_hidden, whole.flag("projector_bias"))

    return _found(parts())


def _pooling_head(tower: str, hidden: int, inner: int) -> Iterator[Part]:
    yield f"{tower}.head.probe", (1, 1, hidden), "other"
    yield f"{tower}.head.attention.in_proj_weight", (3 * hidden, hidden), "other"
    yield f"{tower}.head.attention.in_proj_bias", (3 * hidden,), "other"
    yield from _linear(f"{tower}.head.attention.out_proj", hidden, hidden)
    yield from _norm(f"{tower}.head.layernorm", hidden)
    yield from _linear(f"{tower}.head.mlp.fc1", hidden, inner)
    yield from _linear(f"{tower}.head.mlp.fc2", inner, hidden)


def _llama4(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34, "image_size": 448}
    outs = {"vision_output_dim": 7680, "projector_input_dim": 4096, "projector_output_dim": 4096}
    fields = _inner(outer, "vision_config", {**sizes, **outs, "patch_size": 14, "pixel_shuffle_ratio": 0.5})

    def parts() -> Iterator[Part]:
        hidden, inner, tower = fields.integer("hidden_size"), fields.integer("intermediate_size"), "vision_model"
        patch = fields.integer("patch_size")
        side = fields.integer("image_size") // patch
        yield f"{tower}.class_embedding", (hidden,), "other"
        yield f"{tower}.positional_embedding_vlm", (side * side + 1, hidden), "other"
        yield from _linear(f"{tower}.patch_embedding.linear", 3 * patch * patch, hidden, False)
        yield from (*_norm(f"{tower}.layernorm_pre", hidden), *_norm(f"{tower}.layernorm_post", hidden))
        for layer in _layers(fields, "num_hidden_layers"):
            name = f"{tower}.model.layers.{layer}"
            for letter in "qkvo":
                yield from _linear(f"{name}.self_attn.{letter}_proj", hidden, hidden)
            yield from _linear(f"{name}.mlp.fc1", hidden, inner)
            yield from _linear(f"{name}.mlp.fc2", inner, hidden)
            yield from _norm(f"{name}.input_layernorm", hidden)
            yield from _norm(f"{name}.post_attention_layernorm", hidden)
        middle, out = fields.integer("projector_input_dim"), fields.integer("projector_output_dim")
        yield from _linear(f"{tower}.vision_adapter.mlp.fc1", inner, middle, False)
        yield from _linear(f"{tower}.vision_adapter.mlp.fc2", middle, out, False)
        yield from _linear("multi_modal_projector.linear_1", fields.integer("vision_output_dim"), text_hidden, False)

    return _found(parts(), part=".language_model")


def _mllama(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_global_layers": 8}
    outs = {"vision_output_dim": 7680, "image_size": 448, "patch_size": 14, "max_num_tiles": 4}
    fields = _inner(outer, "vision_config", {**sizes, **outs})
    hidden, inner, tower = fields.integer("hidden_size"), fields.integer("intermediate_size"), "model.vision_model"

    def layer(name: str, gated: bool) -> Iterator[Part]:
        if gated:
            yield f"{name}.gate_attn", (1,), "other"
            yield f"{name}.gate_ffn", (1,), "other"
        for letter in "qkvo":
            yield from _linear(f"{name}.self_attn.{letter}_proj", hidden, hidden, False)
        yield from _linear(f"{name}.mlp.fc1", hidden, inner)
        yield from _linear(f"{name}.mlp.fc2", inner, hidden)
        yield from _norm(f"{name}.input_layernorm", hidden)
        yield from _norm(f"{name}.post_attention_layernorm", hidden)

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
        yield from (*_norm(f"{tower}.layernorm_pre", hidden), *_norm(f"{tower}.layernorm_post", hidden))
        for number in _layers(fields, "num_hidden_layers"):
            yield from layer(f"{tower}.transformer.layers.{number}", gated=False)
        for number in _layers(fields, "num_global_layers"):
            yield from layer(f"{tower}.global_transformer.layers.{number}", gated=True)

    after = _linear("model.multi_modal_projector", fields.integer("vision_output_dim"), text_hidden)
    return _found(parts(), after)


def _gemma4(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16, "num_attention_heads": 12}
    own = {"num_key_value_heads": 12, "head_dim": 64, "patch_size": 16, "position_embedding_size": 10240}
    fields = _inner(outer, "vision_config", {**sizes, **own})
    audio = "audio_config (gemma4_audio)" if outer.mapping("audio_config") else ""
    if not outer.mapping("vision_config"):
        return _found(iter(()), left_out=audio)
    hidden, inner, tower = fields.integer("hidden_size"), fields.integer("intermediate_size"), "model.vision_tower"

    def parts() -> Iterator[Part]:
        table = (2, fields.integer("position_embedding_size"), hidden)
        width = fields.integer("head_dim")
        queries, keys = (width * fields.integer(f"num_{key}_heads") for key in ("attention", "key_value"))
        yield f"{tower}.patch_embedder.position_embedding_table", table, "other"
        yield from _linear(f"{tower}.patch_embedder.input_proj", 3 * fields.integer("patch_size") ** 2, hidden, False)
        for layer in _layers(fields, "num_hidden_layers"):
            name = f"{tower}.encoder.layers.{layer}"
            yield from _linear(f"{name}.self_attn.q_proj.linear", hidden, queries, False)
            yield from _linear(f"{name}.self_attn.k_proj.linear", hidden, keys, False)
            yield from _linear(f"{name}.self_attn.v_proj.linear", hidden, keys, False)
            yield from _linear(f"{name}.self_attn.o_proj.linear", queries, hidden, False)
            yield from (
                *_norm(f"{name}.self_attn.q_norm", width, False),
                *_norm(f"{name}.self_attn.k_norm", width, False),
            )
            yield from _linear(f"{name}.mlp.gate_proj.linear", hidden, inner, False)
            yield from _linear(f"{name}.mlp.up_proj.linear", hidden, inner, False)
            yield from _linear(f"{name}.mlp.down_proj.linear", inner, hidden, False)
            for place in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
                yield from _norm(f"{name}.{place}_layernorm", hidden, False)

    after = _linear("model.embed_vision.embedding_projection", hidden, text_hidden, False)
    return _found(parts(), after, left_out=audio)


def _gemma4_unified(outer: Fields, text_hidden: int) -> dict[str, Any]:
    """No towers: patches and sound go through a projection each."""
    own = {"mm_embed_dim": 3840, "mm_posemb_size": 1120, "patch_size": 16, "pooling_kernel_size": 3}
    fields = _inner(outer, "vision_config", {**own, "output_proj_dims": 3840})
    sound = _inner(outer, "audio_config", {"audio_embed_dim": 640})

    def parts() -> Iterator[Part]:
        if outer.mapping("vision_config"):
            wide, start = fields.integer("mm_embed_dim"), "model.embed_vision"
            patch = 3 * (fields.integer("patch_size") * fields.integer("pooling_kernel_size")) ** 2
            yield f"{start}.pos_embedding", (fields.integer("mm_posemb_size"), 2, wide), "other"
            yield from _norm(f"{start}.patch_ln1", patch)
            yield from _linear(f"{start}.patch_dense", patch, wide)
            yield from (*_norm(f"{start}.patch_ln2", wide), *_norm(f"{start}.pos_norm", wide))
            out = fields.integer("output_proj_dims")
            yield from _linear(f"{start}.multimodal_embedder.embedding_projection", out, text_hidden, False)
        if outer.mapping("audio_config"):
            width = sound.integer("audio_embed_dim")
            yield from _linear("model.embed_audio.embedding_projection", width, text_hidden, False)

    return _found(iter(()), parts())


def _voxtral(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_mel_bins": 128}
    fields = _inner(outer, "audio_config", {**sizes, "max_source_positions": 1500})
    hidden, inner, tower = fields.integer("hidden_size"), fields.integer("intermediate_size"), "model.audio_tower"

    def parts() -> Iterator[Part]:
        for name, inputs in (("conv1", fields.integer("num_mel_bins")), ("conv2", hidden)):
            yield f"{tower}.{name}.weight", (hidden, inputs, 3), "other"
            yield f"{tower}.{name}.bias", (hidden,), "other"
        yield f"{tower}.embed_positions.weight", (fields.integer("max_source_positions"), hidden), "embedding"
        for layer in _layers(fields, "num_hidden_layers"):
            name = f"{tower}.layers.{layer}"
            for projection in ("k_proj", "v_proj", "q_proj", "out_proj"):
                yield from _linear(f"{name}.self_attn.{projection}", hidden, hidden, projection != "k_proj")
            yield from _norm(f"{name}.self_attn_layer_norm", hidden)
            yield from _linear(f"{name}.fc1", hidden, inner)
            yield from _linear(f"{name}.fc2", inner, hidden)
            yield from _norm(f"{name}.final_layer_norm", hidden)
        yield from _norm(f"{tower}.layer_norm", hidden)

    def after() -> Iterator[Part]:
        yield from _linear("model.multi_modal_projector.linear_1", inner, text_hidden, False)
        yield from _linear("model.multi_modal_projector.linear_2", text_hidden, text_hidden, False)

    return _found(parts(), after())


TOWERS: dict[str, Maker] = {
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), _qwen3_vl),
    **dict.fromkeys(("glm4v", "glm46v"), _glm4v),
    "internvl": _internvl,
    **dict.fromkeys(("smolvlm", "idefics3"), _smolvlm),
    "lfm2_vl": _lfm2_vl,
    "llama4": _llama4,
    "mllama": _mllama,
    "gemma4": _gemma4,
    "gemma4_unified": _gemma4_unified,
    "voxtral": _voxtral,
}
