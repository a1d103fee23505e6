"""GPT-OSS: experts with biases, stored as (in, out), and a learned attention sink a head."""

from __future__ import annotations

from vramwise.families.base import ATTENTION_BIAS, Block, Mixture, model_type
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parameter, Parts, attention, norms, router
from vramwise.types import ModelSpec


def _block(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    count, hidden, size = model.num_experts, model.hidden_size, model.moe_intermediate_size
    yield Parameter("self_attn.sinks", (model.num_attention_heads,), "other")
    yield from attention(model, block)
    yield from router(model, "mlp.router")
    yield Parameter("mlp.router.bias", (count,), "router")
    yield Parameter("mlp.experts.gate_up_proj", (count, hidden, 2 * size), "experts")
    yield Parameter("mlp.experts.gate_up_proj_bias", (count, 2 * size), "experts")
    yield Parameter("mlp.experts.down_proj", (count, size, hidden), "experts")
    yield Parameter("mlp.experts.down_proj_bias", (count, hidden), "experts")
    yield from norms(model, block)


FAMILY = Family(
    name="gpt_oss",
    block=Block(
        norm="weight in fp32",
        rotation="halves",
        tables="half as wide",
        masks_by_kind=True,
        mixture=Mixture(router="router", softmax_last=True, clamped=True),
    ),
    layout=Layout(block=_block),
    types={
        "gpt_oss": model_type(
            sizes=(201088, 2880, 64, 8, 131072),
            switches=ATTENTION_BIAS,
            attention_bias=True,
            head_dim=64,
            sliding_window=128,
            sliding_window_pattern=2,
            window="pattern",
            num_local_experts=128,
            num_experts_per_tok=4,
        )
    },
)
