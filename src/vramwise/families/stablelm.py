"""StableLM: llama with LayerNorms; attention and MLP in parallel where the file says so, after one norm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.families.base import Block, model_type
from vramwise.families.config_fields import Fields
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parameter, Parts, mlp, norms, projections
from vramwise.types import ModelSpec


def _settles(fields: Fields, found: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"norms_per_block": 1} if found["parallel_residual"] else {}


def _block(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    yield from projections(model, block)
    if model.qk_norm != "none":
        yield from _head_norms(model)
    yield from mlp(model)
    yield from norms(model, block)


def _head_norms(model: ModelSpec) -> Parts:
    """A LayerNorm module a head, without biases. What they take in a step is not modelled."""
    for which, heads in (("q", model.num_attention_heads), ("k", model.num_key_value_heads)):
        for head in range(heads):
            yield Parameter(f"self_attn.{which}_layernorm.norms.{head}.weight", (model.head_dim,), "norm")


FAMILY = Family(
    name="stablelm",
    block=Block(parallel="residual, attention"),
    layout=Layout(block=_block),
    types={
        "stablelm": model_type(
            sizes=(50304, 6912, 32, 32, 4096),
            fixed={"norm": "layer"},
            switches={"qkv_bias": "use_qkv_bias", "parallel_residual": "use_parallel_residual"},
            computes_head_dim=True,
            partial_rotary_factor=0.25,
            settles=_settles,
        )
    },
)
