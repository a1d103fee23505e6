"""The dimensions of a model, and the trace of its code if no family describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """The operations of a model's own code in one layer of each kind, recorded by `tracing`.

    Traces are compared by identity: a process holds one object for each.

    `parameters`: name, shape, kind and layer, in the model's order. `kinds`: the number of its kind for each layer.
    `modes`: for each precision ("bf16", "bf16, autocast", "fp32, autocast"…), the programs of a pass.
    """

    source: str  # "transformers 5.22.2"
    parameters: tuple[tuple[str, tuple[int, ...], str, int | None], ...]
    layers: str
    embedding: str
    final_norm: str
    head: str
    kinds: tuple[int, ...]
    experts_like: str  # the type whose old names of experts PEFT knows these by; empty: it redirects none
    scaled_logits: bool  # the head's result is multiplied by a number
    modes: Mapping[str, Mapping[str, Any]]
    wide_logits: bool = False  # the head's result is taken to fp32
    eager: bool = False  # attention is written out: the model's code takes no fused kernel
    always_masked: bool = False  # the model's code works on the mask, which is made in any case


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """The dimensions of a model, named as in transformers' config.json; values implied by its family are filled in.

    `family` selects the block that the ghost run builds. `family_assumed` is True if the config's model_type is unknown
    and its llama-like fields were used as they are.
    """

    name: str
    source: str  # where the facts came from: a path, "catalogue", "hub cache"…
    model_type: str
    family: str
    family_assumed: bool = False
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    max_position_embeddings: int
    # block details
    qkv_bias: bool = False
    attention_out_bias: bool = False
    mlp_bias: bool = False
    lm_head_bias: bool = False
    fused_gate_up: bool = False
    gated_mlp: bool = True
    activation: str = "silu"
    norm: Literal["rms", "layer", "layer_no_affine"] = "rms"
    norms_per_block: int = 2
    qk_norm: Literal["none", "head", "full"] = "none"
    parallel_residual: bool = False
    rotary_fraction: float = 1.0
    sliding_window: int | None = None
    layer_types: tuple[str, ...] = ()
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    attention_dropout: float = 0.0
    # mixture of experts; num_experts 0 = dense
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    shared_expert_intermediate_size: int = 0
    dense_layers: tuple[int, ...] = ()  # layers of an MoE model that have an ordinary MLP
    # other settings that change the tensors of a block
    hidden_dropout: float = 0.0  # on the outputs of attention and MLP
    embedding_dropout: float = 0.0
    nope_layers: tuple[int, ...] = ()  # layers whose attention applies no rotary embedding
    # how the checkpoint is stored: the quant_method of its config (gptq, mxfp4, bitsandbytes_4bit…), None = plain
    checkpoint_quantization: str | None = None
    # sizes that only this family's blocks have, by their names in config.json: heads of a delta rule, ranks of latents
    sizes: tuple[tuple[str, int], ...] = ()
    # a multimodal model: `text_part` is the name of its text model ("" = it is the text model; with a leading dot, the
    # whole text model has that name); `tower` holds (name, shape, kind) of the parameters before the text model (vision
    # tower, projector); `left_out` describes what is known to be missing ("" = nothing)
    text_part: str = ""
    tower: tuple[tuple[str, tuple[int, ...], str], ...] = ()
    after_text: tuple[tuple[str, tuple[int, ...], str], ...] = ()  # the same for parameters after the text model
    left_out: str = ""
    # "encoder": it reads rows as a whole and has no head for the vocabulary; "both": a decoder attends to an encoder
    reads: Literal["decoder", "encoder", "both"] = "decoder"
    # the type that the checkpoint is stored in ("" = not known)
    stored_dtype: Literal["", "fp32", "bf16", "fp16"] = ""
    # True for a model with untrained weights (`"random_weights": true` in config.json)
    random_weights: bool = False
    # the known model whose shape was inferred from the name, and the matching part of the name ("" = not inferred)
    taken_for: str = ""
    # the trace of its code if no family describes it, or why there is none
    trace: Trace | None = None
    untraced: str = ""

    def size(self, name: str) -> int:
        """Return one of `sizes`, or 0 if it is not set."""
        return dict(self.sizes).get(name, 0)
