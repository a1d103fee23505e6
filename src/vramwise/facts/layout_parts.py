"""The pieces of parameter layouts: a linear, a norm, an attention, an MLP, with the names transformers gives them.

Yields relative names in registration order. Knows which sizes of a `ModelSpec` go where; does not know which family is
made of which pieces (`layouts.py` does).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Literal, NamedTuple

from vramwise.types import ModelSpec

# "conv1d" is GPT-2's transposed linear; "norm" and "lm_head" and "router" include the biases of those modules;
# "other": attention sinks, learnable activations.
Kind = Literal["embedding", "linear", "conv1d", "bias", "norm", "lm_head", "experts", "router", "other"]


class Parameter(NamedTuple):
    """One parameter: its name as transformers spells it, shape, what it is, and its layer (None outside the blocks)."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    layer: int | None = None

    @property
    def numel(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


Parts = Iterator[Parameter]


def linear(name: str, inputs: int, outputs: int, bias: bool) -> Parts:
    """A linear module: weight (out, in) and bias."""
    yield Parameter(f"{name}.weight", (outputs, inputs), "linear")
    if bias:
        yield Parameter(f"{name}.bias", (outputs,), "bias")


def conv1d(name: str, inputs: int, outputs: int) -> Parts:
    """GPT-2's linear: weight (in, out) and bias."""
    yield Parameter(f"{name}.weight", (inputs, outputs), "conv1d")
    yield Parameter(f"{name}.bias", (outputs,), "bias")


def norm(name: str, model: ModelSpec, *shape: int) -> Parts:
    """A norm over the hidden size, or over `shape`."""
    if model.norm == "layer_no_affine":
        return
    shape = shape or (model.hidden_size,)
    yield Parameter(f"{name}.weight", shape, "norm")
    # Cohere's own LayerNorm has a weight only.
    if model.norm == "layer" and model.family != "cohere":
        yield Parameter(f"{name}.bias", shape, "norm")


def norms(model: ModelSpec, *names: str) -> Parts:
    """Norms over the hidden size."""
    for name in names:
        yield from norm(name, model)


def query_size(model: ModelSpec) -> int:
    """The width of all query heads."""
    return model.num_attention_heads * model.head_dim


def key_size(model: ModelSpec) -> int:
    """The width of all key heads; values have the same."""
    return model.num_key_value_heads * model.head_dim


def _qkv(model: ModelSpec) -> Parts:
    yield from linear("self_attn.q_proj", model.hidden_size, query_size(model), model.qkv_bias)
    yield from linear("self_attn.k_proj", model.hidden_size, key_size(model), model.qkv_bias)
    yield from linear("self_attn.v_proj", model.hidden_size, key_size(model), model.qkv_bias)


def attention(model: ModelSpec, out: str = "o_proj") -> Parts:
    """Separate q, k, v and output projections, then the norms of q and k."""
    yield from _qkv(model)
    yield from linear(f"self_attn.{out}", query_size(model), model.hidden_size, model.attention_out_bias)
    yield from _qk_norms(model)


_QK_NORM_NAMES = {"hunyuan_v1_dense": ("query_layernorm", "key_layernorm"), "phi": ("q_layernorm", "k_layernorm")}


def _qk_norms(model: ModelSpec) -> Parts:
    if model.qk_norm == "none":
        return
    query, key = _QK_NORM_NAMES.get(model.model_type, ("q_norm", "k_norm"))
    if model.model_type == "stablelm":
        yield from _stablelm_qk_norms(model)
    elif model.family == "cohere":  # one weight row a head
        yield from norm("self_attn.q_norm", model, model.num_attention_heads, model.head_dim)
        yield from norm("self_attn.k_norm", model, model.num_key_value_heads, model.head_dim)
    elif model.qk_norm == "head":
        yield from norm(f"self_attn.{query}", model, model.head_dim)
        yield from norm(f"self_attn.{key}", model, model.head_dim)
    else:
        yield from norm(f"self_attn.{query}", model, query_size(model))
        yield from norm(f"self_attn.{key}", model, key_size(model))


def _stablelm_qk_norms(model: ModelSpec) -> Parts:
    """A LayerNorm module a head, without biases."""
    for which, heads in (("q", model.num_attention_heads), ("k", model.num_key_value_heads)):
        for head in range(heads):
            yield Parameter(f"self_attn.{which}_layernorm.norms.{head}.weight", (model.head_dim,), "norm")


def mlp(model: ModelSpec, name: str = "mlp", size: int | None = None) -> Parts:
    """Gate, up and down; gate and up in one where fused, no gate where not gated."""
    size = size or model.intermediate_size
    if model.fused_gate_up:
        yield from linear(f"{name}.gate_up_proj", model.hidden_size, 2 * size, model.mlp_bias)
    else:
        if model.gated_mlp:
            yield from linear(f"{name}.gate_proj", model.hidden_size, size, model.mlp_bias)
        yield from linear(f"{name}.up_proj", model.hidden_size, size, model.mlp_bias)
    yield from linear(f"{name}.down_proj", size, model.hidden_size, model.mlp_bias)


def two_matrices(model: ModelSpec, up: str, down: str) -> Parts:
    """An MLP without a gate."""
    yield from linear(up, model.hidden_size, model.intermediate_size, model.mlp_bias)
    yield from linear(down, model.intermediate_size, model.hidden_size, model.mlp_bias)
