"""Phi-3 and 4: llama with fused qkv_proj and gate_up_proj."""

from __future__ import annotations

from vramwise.families.base import Block, model_type
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parts, key_size, linear, mlp, norms, query_size
from vramwise.types import ModelSpec


def _block(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    qkv, out = block.attention
    yield from linear(out, query_size(model), model.hidden_size, False)
    yield from linear(qkv, model.hidden_size, query_size(model) + 2 * key_size(model), False)
    yield from mlp(model)
    yield from norms(model, block)


FAMILY = Family(
    name="phi3",
    block=Block(
        fused_attention="cut by width",
        attention=("self_attn.qkv_proj", "self_attn.o_proj"),
        rotation="part",
    ),
    layout=Layout(block=_block),
    types={
        "phi3": model_type(
            sizes=(32064, 8192, 32, None, 4096),
            fixed={"fused_qkv": True, "fused_gate_up": True},
            window="all",
        )
    },
)
