"""GLM: llama with a fused gate_up_proj that turns half of each head."""

from __future__ import annotations

from vramwise.families.base import QKV_BIAS, Block, model_type
from vramwise.families.layout import Family

FAMILY = Family(
    name="glm",
    block=Block(),
    types={
        "glm": model_type(
            sizes=(151552, 13696, 32, 2, 131072),
            fixed={"fused_gate_up": True},
            switches=QKV_BIAS,
            attention_bias=True,
            head_dim=128,
            partial_rotary_factor=0.5,
        )
    },
)
