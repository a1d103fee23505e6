"""How each family lays out its parameters: which modules a block has, in which order, under which names.

Facts read off the modelling code of transformers 5.22 (`modeling_<family>.py`). Does not know numbers of its own: every
size comes from the `ModelSpec`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vramwise.errors import VramwiseError
from vramwise.facts.layout_parts import (
    Kind,
    Parameter,
    Parts,
    attention,
    conv1d,
    key_size,
    linear,
    mlp,
    norm,
    norms,
    query_size,
    two_matrices,
)
from vramwise.types import ModelSpec

__all__ = ["LAYOUTS", "Kind", "Layout", "Parameter", "layout_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The skeleton of a family: what comes before the blocks, one block, and what comes after."""

    layers: str = "model.layers"
    embedding: str = "model.embed_tokens"
    final_norm: str = "model.norm"
    positions: str | None = None  # a learned position table
    block: Callable[[ModelSpec, bool], Parts]

    def inside(self, model: ModelSpec, name: str) -> str:
        """The name within a multimodal model: `model.layers` becomes `model.language_model.layers`."""
        return name.replace(".", f".{model.text_part}.", 1) if model.text_part else name

    def embeddings(self, model: ModelSpec) -> Parts:
        """The token table, and the position table where positions are learned."""
        name = self.inside(model, self.embedding)
        yield Parameter(f"{name}.weight", (model.vocab_size, model.hidden_size), "embedding")
        if self.positions is not None:
            shape = (model.max_position_embeddings, model.hidden_size)
            yield Parameter(f"{self.positions}.weight", shape, "embedding")

    def final(self, model: ModelSpec) -> Parts:
        """The last norm, and the head where it has weights of its own."""
        yield from norm(self.inside(model, self.final_norm), model)
        if not model.tie_word_embeddings:
            yield Parameter("lm_head.weight", (model.vocab_size, model.hidden_size), "lm_head")
        if model.lm_head_bias:
            yield Parameter("lm_head.bias", (model.vocab_size,), "lm_head")


_NORM_NAMES: dict[str, tuple[str, ...]] = {
    "llama": ("input_layernorm", "post_attention_layernorm"),
    "olmo2": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "gemma2": (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
    "glm4": ("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm"),
    "apertus": ("attention_layernorm", "feedforward_layernorm"),
}
_NORM_NAMES["gemma3"] = _NORM_NAMES["gemma2"]


def _block_norms(model: ModelSpec) -> Parts:
    names = _NORM_NAMES.get(model.family, _NORM_NAMES["llama"])
    yield from norms(model, *names[: model.norms_per_block])


def _llama(model: ModelSpec, sparse: bool) -> Parts:
    yield from attention(model)
    yield from mlp(model)
    yield from _block_norms(model)


def _phi3(model: ModelSpec, sparse: bool) -> Parts:
    yield from linear("self_attn.o_proj", query_size(model), model.hidden_size, False)
    fused = query_size(model) + 2 * key_size(model)
    yield from linear("self_attn.qkv_proj", model.hidden_size, fused, False)
    yield from mlp(model)
    yield from _block_norms(model)


def _phi(model: ModelSpec, sparse: bool) -> Parts:
    yield from attention(model, "dense")
    yield from two_matrices(model, "mlp.fc1", "mlp.fc2")
    yield from _block_norms(model)


def _starcoder2(model: ModelSpec, sparse: bool) -> Parts:
    yield from attention(model)
    yield from two_matrices(model, "mlp.c_fc", "mlp.c_proj")
    yield from _block_norms(model)


def _apertus(model: ModelSpec, sparse: bool) -> Parts:
    yield from attention(model)
    yield from mlp(model)
    yield Parameter("mlp.act_fn.alpha_p", (1,), "other")
    yield Parameter("mlp.act_fn.alpha_n", (1,), "other")
    yield from _block_norms(model)


def _gpt_neox(model: ModelSpec, sparse: bool) -> Parts:
    yield from norms(model, "input_layernorm", "post_attention_layernorm")
    yield from linear("attention.query_key_value", model.hidden_size, 3 * model.hidden_size, model.qkv_bias)
    yield from linear("attention.dense", model.hidden_size, model.hidden_size, model.attention_out_bias)
    yield from two_matrices(model, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h")


def _falcon(model: ModelSpec, sparse: bool) -> Parts:
    fused = query_size(model) + 2 * key_size(model)
    yield from linear("self_attention.query_key_value", model.hidden_size, fused, model.qkv_bias)
    yield from linear("self_attention.dense", model.hidden_size, model.hidden_size, model.attention_out_bias)
    yield from two_matrices(model, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h")
    if model.norms_per_block == 1:
        yield from norms(model, "input_layernorm")
    elif model.parallel_residual:
        yield from norms(model, "ln_attn", "ln_mlp")
    else:
        yield from norms(model, "post_attention_layernorm", "input_layernorm")


def _gpt2(model: ModelSpec, sparse: bool) -> Parts:
    yield from norm("ln_1", model)
    yield from conv1d("attn.c_attn", model.hidden_size, 3 * model.hidden_size)
    yield from conv1d("attn.c_proj", model.hidden_size, model.hidden_size)
    yield from norm("ln_2", model)
    yield from conv1d("mlp.c_fc", model.hidden_size, model.intermediate_size)
    yield from conv1d("mlp.c_proj", model.intermediate_size, model.hidden_size)


def _router(model: ModelSpec, name: str = "mlp.gate") -> Parts:
    yield Parameter(f"{name}.weight", (model.num_experts, model.hidden_size), "router")


def _experts(model: ModelSpec) -> Parts:
    experts, hidden, size = model.num_experts, model.hidden_size, model.moe_intermediate_size
    yield Parameter("mlp.experts.gate_up_proj", (experts, 2 * size, hidden), "experts")
    yield Parameter("mlp.experts.down_proj", (experts, hidden, size), "experts")


def _moe(inside: Callable[[ModelSpec], Parts]) -> Callable[[ModelSpec, bool], Parts]:
    """A llama block whose MLP is a mixture in its sparse layers."""

    def block(model: ModelSpec, sparse: bool) -> Parts:
        yield from attention(model)
        yield from inside(model) if sparse else mlp(model)
        yield from _block_norms(model)

    return block


def _mixtral_moe(model: ModelSpec) -> Parts:
    yield from _router(model)
    yield from _experts(model)


def _qwen2_moe(model: ModelSpec) -> Parts:
    yield from _mixtral_moe(model)
    yield from mlp(model, "mlp.shared_expert", model.shared_expert_intermediate_size)
    yield from linear("mlp.shared_expert_gate", model.hidden_size, 1, False)


def _qwen3_moe(model: ModelSpec) -> Parts:
    yield from _experts(model)
    yield from _router(model)


def _glm4_moe(model: ModelSpec) -> Parts:
    yield from _qwen3_moe(model)
    yield from mlp(model, "mlp.shared_experts", model.shared_expert_intermediate_size)


def _gpt_oss(model: ModelSpec, sparse: bool) -> Parts:
    """Experts with biases, stored as (in, out), and a learned attention sink a head."""
    experts, hidden, size = model.num_experts, model.hidden_size, model.moe_intermediate_size
    yield Parameter("self_attn.sinks", (model.num_attention_heads,), "other")
    yield from attention(model)
    yield from _router(model, "mlp.router")
    yield Parameter("mlp.router.bias", (experts,), "router")
    yield Parameter("mlp.experts.gate_up_proj", (experts, hidden, 2 * size), "experts")
    yield Parameter("mlp.experts.gate_up_proj_bias", (experts, 2 * size), "experts")
    yield Parameter("mlp.experts.down_proj", (experts, size, hidden), "experts")
    yield Parameter("mlp.experts.down_proj_bias", (experts, hidden), "experts")
    yield from _block_norms(model)


_LLAMA = Layout(block=_llama)
_GPT2_NAMES = {"layers": "transformer.h", "final_norm": "transformer.ln_f"}

LAYOUTS: dict[str, Layout] = {
    **dict.fromkeys(("llama", "gemma", "gemma2", "gemma3", "olmo2", "cohere", "glm", "glm4"), _LLAMA),
    "apertus": Layout(block=_apertus),
    "phi3": Layout(block=_phi3),
    "phi": Layout(block=_phi, final_norm="model.final_layernorm"),
    "starcoder2": Layout(block=_starcoder2),
    "mixtral": Layout(block=_moe(_mixtral_moe)),
    "olmoe": Layout(block=_moe(_mixtral_moe)),
    "qwen2_moe": Layout(block=_moe(_qwen2_moe)),
    "qwen3_moe": Layout(block=_moe(_qwen3_moe)),
    "glm4_moe": Layout(block=_moe(_glm4_moe)),
    "gpt_oss": Layout(block=_gpt_oss),
    "gpt_neox": Layout(
        block=_gpt_neox,
        layers="gpt_neox.layers",
        embedding="gpt_neox.embed_in",
        final_norm="gpt_neox.final_layer_norm",
    ),
    "falcon": Layout(block=_falcon, embedding="transformer.word_embeddings", **_GPT2_NAMES),
    "gpt2": Layout(block=_gpt2, embedding="transformer.wte", positions="transformer.wpe", **_GPT2_NAMES),
}


def layout_of(model: ModelSpec) -> Layout:
    """The layout of the model's family."""
    layout = LAYOUTS.get(model.family)
    if layout is None:
        raise VramwiseError(f"no parameter layout is known for the family '{model.family}' of {model.name}")
    return layout
