"""The parts of parameter layouts: linear, norm, attention, MLP, with transformers' names.

The functions yield relative names in registration order, with shapes from a `ModelSpec`. Each family combines the parts
in its own file, with a `Layout` (`layout.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Literal, NamedTuple

from vramwise.models.families.base import Block
from vramwise.types import ModelSpec

# "conv1d" is GPT-2's transposed linear; "norm" and "lm_head" and "router" include the biases of those modules;
# "other": attention sinks, learnable activations.
Kind = Literal["embedding", "linear", "conv1d", "bias", "norm", "lm_head", "experts", "router", "other"]


class Parameter(NamedTuple):
    """One parameter: its name in transformers, its shape, its kind, and its layer (None outside the blocks)."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    layer: int | None = None

    @property
    def numel(self) -> int:
        """The number of elements."""
        return prod(self.shape)


Parts = Iterator[Parameter]


def linear(name: str, inputs: int, outputs: int, bias: bool) -> Parts:
    """Return a linear module: weight (out, in) and bias."""
    yield Parameter(f"{name}.weight", (outputs, inputs), "linear")
    if bias:
        yield Parameter(f"{name}.bias", (outputs,), "bias")


def conv1d(name: str, inputs: int, outputs: int) -> Parts:
    """GPT-2's linear: weight (in, out) and bias."""
    yield Parameter(f"{name}.weight", (inputs, outputs), "conv1d")
    yield Parameter(f"{name}.bias", (outputs,), "bias")


def norm(name: str, model: ModelSpec, block: Block, *shape: int) -> Parts:
    """Return a norm over the hidden size, or over `shape`."""
    if model.norm == "layer_no_affine":
        return
    shape = shape or (model.hidden_size,)
    yield Parameter(f"{name}.weight", shape, "norm")
    if model.norm == "layer" and block.norm != "layer without bias" and block.norm_biases:
        yield Parameter(f"{name}.bias", shape, "norm")


def norms(model: ModelSpec, block: Block, *names: str) -> Parts:
    """Norms over the hidden size: those named, or the block's own."""
    for name in names or block.norms[: model.norms_per_block]:
        yield from norm(name, model, block)


def query_size(model: ModelSpec) -> int:
    """Return the total width of all query heads."""
    return model.num_attention_heads * model.head_dim


def key_size(model: ModelSpec) -> int:
    """Return the total width of all key heads, which is also that of the values."""
    return model.num_key_value_heads * model.head_dim


def projections(model: ModelSpec, block: Block) -> Parts:
    """Separate q, k, v and output projections."""
    query, key, value, out = block.attention
    yield from linear(query, model.hidden_size, query_size(model), model.qkv_bias)
    yield from linear(key, model.hidden_size, key_size(model), model.qkv_bias)
    yield from linear(value, model.hidden_size, key_size(model), model.qkv_bias)
    yield from linear(out, query_size(model), model.hidden_size, model.attention_out_bias)


def attention(model: ModelSpec, block: Block) -> Parts:
    """Separate projections, then the norms of q and k if the model has them, over a head or over the full width."""
    yield from projections(model, block)
    if model.qk_norm == "none":
        return
    sizes = (model.head_dim,) * 2 if model.qk_norm == "head" else (query_size(model), key_size(model))
    for name, size in zip(block.head_norms, sizes, strict=True):
        yield from norm(f"self_attn.{name}", model, block, size)


def mlp(model: ModelSpec, name: str = "mlp", size: int | None = None) -> Parts:
    """Return MLP: gate, up and down. Gate and up are one projection if fused; there is no gate if it is not gated."""
    size = size or model.intermediate_size
    if model.fused_gate_up:
        yield from linear(f"{name}.gate_up_proj", model.hidden_size, 2 * size, model.mlp_bias)
    else:
        if model.gated_mlp:
            yield from linear(f"{name}.gate_proj", model.hidden_size, size, model.mlp_bias)
        yield from linear(f"{name}.up_proj", model.hidden_size, size, model.mlp_bias)
    yield from linear(f"{name}.down_proj", size, model.hidden_size, model.mlp_bias)


def two_matrices(model: ModelSpec, block: Block) -> Parts:
    """Return an MLP without a gate, under the block's names."""
    up, down = [f"mlp.{name}" for name in block.plain_mlp]
    yield from linear(up, model.hidden_size, model.intermediate_size, model.mlp_bias)
    yield from linear(down, model.intermediate_size, model.hidden_size, model.mlp_bias)


def router(model: ModelSpec, name: str = "mlp.gate") -> Parts:
    """Return the router, which chooses the experts of a token."""
    yield Parameter(f"{name}.weight", (model.num_experts, model.hidden_size), "router")


def experts(model: ModelSpec, name: str = "mlp.experts") -> Parts:
    """Return all experts of a layer: one 3-D tensor for each projection."""
    count, hidden, size = model.num_experts, model.hidden_size, model.moe_intermediate_size
    yield Parameter(f"{name}.gate_up_proj", (count, 2 * size, hidden), "experts")
    yield Parameter(f"{name}.down_proj", (count, hidden, size), "experts")
