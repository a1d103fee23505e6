"""SmolLM 3: llama with layers whose attention applies no rotary embedding, every fourth by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vramwise.families.base import ATTENTION_MLP_BIAS, LLAMA_BLOCK, model_type
from vramwise.families.config_fields import Fields
from vramwise.families.layout import Family


def _settles(fields: Fields, found: Mapping[str, Any]) -> Mapping[str, Any]:
    layers = found["num_hidden_layers"]
    rotary = fields.integers("no_rope_layers")  # 1 = has rotary embeddings, despite the name
    if rotary:
        return {"nope_layers": tuple(layer for layer, has in enumerate(rotary[:layers]) if not has)}
    every = fields.integer("no_rope_layer_interval")
    return {"nope_layers": tuple(layer for layer in range(layers) if (layer + 1) % every == 0)}


FAMILY = Family(
    name="smollm3",
    block=replace(LLAMA_BLOCK, masks_by_kind=True),
    types={
        "smollm3": model_type(
            sizes=(128256, 11008, 16, 4, 32768),
            switches=ATTENTION_MLP_BIAS,
            tie_word_embeddings=True,
            no_rope_layer_interval=4,
            settles=_settles,
        )
    },
)
