"""LFM2-VL's tower. Parameters as transformers 5.22 has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.families.config_fields import Fields
from vramwise.families.towers.parts import Maker, Part, block_of, encoder, found, layers, linear, norm, pooling_head


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


TOWERS: dict[str, Maker] = {"lfm2_vl": _lfm2_vl}
