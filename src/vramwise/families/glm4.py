"""GLM 4: GLM that also norms the outputs of attention and MLP."""

from __future__ import annotations

from dataclasses import replace

from vramwise.families.base import QKV_BIAS, Block, model_type
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parts, attention, mlp, norms
from vramwise.types import ModelSpec

_NORMS = ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")


def _block(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    first, after_attention, second, after_mlp = block.norms
    yield from attention(model, block)
    yield from mlp(model)
    yield from norms(model, block, first, second, after_attention, after_mlp)


_GLM4 = model_type(
    sizes=(151552, 13696, 32, 2, 131072),
    fixed={"fused_gate_up": True, "norms_per_block": 4},
    switches=QKV_BIAS,
    attention_bias=True,
    head_dim=128,
    partial_rotary_factor=0.5,
)

FAMILY = Family(
    name="glm4",
    block=Block(order="sandwich", norms=_NORMS),
    layout=Layout(block=_block),
    # the text models of GLM 4.1V, 4.5V and 4.6V
    types={"glm4": _GLM4, "glm4v_text": replace(_GLM4, defaults={**_GLM4.defaults, "head_dim": None})},
)
