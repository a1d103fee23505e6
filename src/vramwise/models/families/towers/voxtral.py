"""Voxtral's audio tower. Parameters as transformers 5.22 has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.models.families.config_fields import Fields
from vramwise.models.families.towers.parts import Maker, Part, block_of, found, layers, linear, norm, two_layers


def _voxtral(outer: Fields, text_hidden: int) -> dict[str, Any]:
    sizes = {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_mel_bins": 128}
    fields = block_of(outer, "audio_config", {**sizes, "max_source_positions": 1500})
    hidden, inner, tower = fields.integer("hidden_size"), fields.integer("intermediate_size"), "model.audio_tower"

    def parts() -> Iterator[Part]:
        for name, inputs in (("conv1", fields.integer("num_mel_bins")), ("conv2", hidden)):
            yield f"{tower}.{name}.weight", (hidden, inputs, 3), "other"
            yield f"{tower}.{name}.bias", (hidden,), "other"
        yield f"{tower}.embed_positions.weight", (fields.integer("max_source_positions"), hidden), "embedding"
        for layer in layers(fields, "num_hidden_layers"):
            name = f"{tower}.layers.{layer}"
            for projection in ("k_proj", "v_proj", "q_proj", "out_proj"):
                yield from linear(f"{name}.self_attn.{projection}", hidden, hidden, projection != "k_proj")
            yield from norm(f"{name}.self_attn_layer_norm", hidden)
            yield from two_layers(name, hidden, inner)
            yield from norm(f"{name}.final_layer_norm", hidden)
        yield from norm(f"{tower}.layer_norm", hidden)

    def after() -> Iterator[Part]:
        yield from linear("model.multi_modal_projector.linear_1", inner, text_hidden, False)
        yield from linear("model.multi_modal_projector.linear_2", text_hidden, text_hidden, False)

    return found(parts(), after())


TOWERS: dict[str, Maker] = {"voxtral": _voxtral}
