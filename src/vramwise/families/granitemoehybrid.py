"""Granite 4: Mamba 2 layers with some of attention between them; experts beside a shared MLP, or that MLP alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.families.base import ATTENTION_BIAS, Block, Mixture, model_type
from vramwise.families.config_fields import Fields
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parameter, Parts, linear, norms, projections
from vramwise.families.state_spaces import mamba2, mamba_sizes
from vramwise.types import ModelSpec

_KINDS = {"mamba": "linear_attention", "attention": "full_attention"}


def _settles(fields: Fields, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Older files call the kinds of layers mamba and attention; without positions nothing is turned."""
    written = fields.texts("layer_types") or fields.texts("layers_block_type")
    kinds = tuple(_KINDS.get(kind, kind) for kind in written or ("mamba",) * found["num_hidden_layers"])
    width = fields.integer("mamba_expand") * found["hidden_size"]
    settled: dict[str, Any] = {"layer_types": kinds, "sizes": mamba_sizes(fields, width=width, norm=True)}
    if fields.text("position_embedding_type") != "rope":
        settled["rotary_fraction"] = 0.0
    settled["shared_expert_intermediate_size"] = fields.integer("shared_intermediate_size")
    return settled


def _layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    yield from norms(model, block)
    if model.num_experts:
        count, hidden, size = model.num_experts, model.hidden_size, model.moe_intermediate_size
        yield Parameter("block_sparse_moe.router.weight", (count, hidden), "router")
        yield Parameter("block_sparse_moe.experts.gate_up_proj", (count, 2 * size, hidden), "experts")
        yield Parameter("block_sparse_moe.experts.down_proj", (count, hidden, size), "experts")
    shared = model.shared_expert_intermediate_size
    yield from linear("shared_mlp.input_linear", model.hidden_size, 2 * shared, False)
    yield from linear("shared_mlp.output_linear", shared, model.hidden_size, False)
    if model.layer_types[layer] == "full_attention":
        yield from projections(model, block)
    else:
        conv_bias = model.size("state_conv_bias") > 0
        yield from mamba2(model, "mamba", bias=model.size("state_bias") > 0, conv_bias=conv_bias)


FAMILY = Family(
    name="granitemoehybrid",
    block=Block(
        scaled_embeddings="after",
        scaled_residuals=True,
        scaled_logits=True,
        feed_forward="block_sparse_moe",
        mixers={"linear_attention": "state space", "mamba": "state space", "attention": "gated"},
        mixture=Mixture(router="router", softmax_last=True, runs="beside a fused MLP"),
    ),
    layout=Layout(by_layer=_layer),
    types={
        "granitemoehybrid": model_type(
            sizes=(32000, 11008, 32, None, 2048),
            switches=ATTENTION_BIAS,
            settles=_settles,
            num_local_experts=8,
            num_experts_per_tok=2,
            shared_intermediate_size=1024,
            mamba_n_heads=128,
            mamba_n_groups=1,
            mamba_d_state=256,
            mamba_d_conv=4,
            mamba_expand=2,
            mamba_chunk_size=256,
            mamba_conv_bias=True,
        )
    },
    measured=False,
    coarse="the scan of its state-space layers is summed up, not followed operation by operation",
)
