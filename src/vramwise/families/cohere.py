"""Cohere: one LayerNorm without bias feeds attention and MLP in parallel. Cohere 2 turns its sliding layers only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vramwise.families.base import ATTENTION_BIAS, Block, model_type
from vramwise.families.config_fields import Fields
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parts, mlp, norm, norms, projections
from vramwise.types import ModelSpec

_BLOCK = Block(
    parallel="residual, attention",
    norm="layer without bias",
    rotation="in fp32",
    scaled_logits=True,
)
_SIZES = (256000, 22528, 64, None, 8192)
_FIXED = {"norm": "layer", "norms_per_block": 1, "parallel_residual": True}


def _settles(fields: Fields, found: Mapping[str, Any]) -> Mapping[str, Any]:
    kinds = found["layer_types"]
    return {"nope_layers": tuple(layer for layer, kind in enumerate(kinds) if kind == "full_attention")}


def _block(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    yield from projections(model, block)
    if model.qk_norm != "none":  # one weight row a head
        yield from norm("self_attn.q_norm", model, block, model.num_attention_heads, model.head_dim)
        yield from norm("self_attn.k_norm", model, block, model.num_key_value_heads, model.head_dim)
    yield from mlp(model)
    yield from norms(model, block)


FAMILY = Family(
    name="cohere",
    block=_BLOCK,
    layout=Layout(block=_block),
    types={
        "cohere": model_type(sizes=_SIZES, fixed=_FIXED, switches=ATTENTION_BIAS, tie_word_embeddings=True),
        "cohere2": model_type(
            sizes=_SIZES,
            fixed=_FIXED,
            switches=ATTENTION_BIAS,
            block=replace(_BLOCK, masks_by_kind=True),
            computes_head_dim=True,
            tie_word_embeddings=True,
            sliding_window=4096,
            sliding_window_pattern=4,
            window="pattern",
            settles=_settles,
        ),
    },
)
