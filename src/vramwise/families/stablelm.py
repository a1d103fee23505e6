"""StableLM: llama with LayerNorms; attention and MLP in parallel where the file says so, after one norm."""

from __future__ import annotations

from vramwise.families.base import Block, Found
from vramwise.families.config_fields import Fields
from vramwise.families.parts import Parameter, Parts, mlp, norms, projections
from vramwise.types import ModelSpec


def settles(fields: Fields, found: Found) -> Found:
    """Set one norm for each block if attention and MLP are parallel."""
    return {"norms_per_block": 1} if found["parallel_residual"] else {}


def block_parts(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """The parameters of one block."""
    yield from projections(model, block)
    if model.qk_norm != "none":
        yield from _head_norms(model)
    yield from mlp(model)
    yield from norms(model, block)


def _head_norms(model: ModelSpec) -> Parts:
    """Yield one LayerNorm without bias for each head. Their memory in a step is not modelled."""
    for which, heads in (("q", model.num_attention_heads), ("k", model.num_key_value_heads)):
        for head in range(heads):
            yield Parameter(f"self_attn.{which}_layernorm.norms.{head}.weight", (model.head_dim,), "norm")
