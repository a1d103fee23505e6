"""The facts about a family from `families.json`, as plain data. No classes of the ghost run are named here.

A `Family` has a parameter layout, a block, and the model_types of transformers that use them. The code that runs a
block maps the words to its own classes. Source of all facts: `configuration_<type>.py` and `modeling_<type>.py` of
transformers 5.22.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from vramwise.models.families.config_fields import Fields

# Which layers have a sliding window. "all": every layer, if the file sets a window. "pattern": all but the last of
# every N. Only with use_sliding_window: "enabled" (every layer), "late" (from max_window_layers on), "alternate" (every
# other layer before it).
Window = Literal["none", "all", "late", "enabled", "alternate", "pattern"]
Rotation = Literal["whole", "part", "parts, then joined", "inside attention", "in fp32 tables", "halves", "in fp32"]
FusedAttention = Literal["cut by width", "cut head by head", "cut in thirds", "copied by index"]
KvHeads = Literal["field", "heads"] | Callable[[Fields, int], int]
Found = Mapping[str, Any]  # ModelSpec fields and their values
Settles = Callable[[Fields, Found], Found]
_ACTIVATION_FIELDS = ("hidden_act", "hidden_activation", "activation_function", "activation")
ParallelOrder = Literal["attention, mlp", "residual, (mlp, attention)", "residual, attention", "two norms"]

# "latent": keys and values through a low rank (MLA). "delta rule": a gated delta net. "conv": a short convolution.
# "state space": Mamba. "gated": attention with a gate on its result, or heads of two widths. "skipped": cross
# attention, which is not used for text alone.
Mixer = Literal["latent", "delta rule", "conv", "state space", "attention and state space", "gated", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """A feed-forward layer of experts."""

    router: str = "gate"
    normalised: bool = False  # the chosen weights are divided by their sum
    cast_back: bool = True  # the weights are cast back to the model's dtype
    softmax_last: bool = False  # chooses the best logits first, then applies softmax to those
    wide_router: bool = False  # the router's input and weight are cast to fp32 first
    # "plain": experts without a gate. "beside an MLP": their results are added to those of the block's MLP. "all
    # tokens": each expert gets every token. "beside a fused MLP": like "beside an MLP", with one projection for gate
    # and up. "one by one": separate products for each expert, with three 2-D weights.
    runs: Literal["gated", "plain", "all tokens", "beside an MLP", "beside a fused MLP", "one by one"] = "gated"
    clamped: bool = False  # gate and up are clamped before they are multiplied
    # whether experts have their own width (moe_intermediate_size); otherwise they have intermediate_size
    own_width: bool = False
    # layers with an ordinary MLP. "first": the first first_k_dense_replace layers. "stepped": set by
    # decoder_sparse_step and mlp_only_layers.
    dense_layers: Literal["none", "first", "stepped"] = "none"
    # the names of the experts' projections before they became one 3-D tensor: PEFT redirects the old names
    peft_names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The facts about how a family's block runs that are not fields of `ModelSpec`."""

    # the position of norms around attention and MLP. "pre, kept": like "pre", with each result kept until the block
    # ends. "one part": a norm, then attention or an MLP, then the residual.
    # "joined": a norm after each sum (BERT).
    order: Literal["pre", "post", "sandwich", "sandwich, scaled", "streams", "pre, kept", "one part", "joined"] = "pre"
    # the order in which a parallel residual is summed; None if the family has no such block
    parallel: ParallelOrder | None = None
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")  # in the order in which they run
    parallel_norms: tuple[str, str] | None = None  # of a parallel block with two norms, if their names differ
    # "stock": RMSNorm, or LayerNorm if ModelSpec says so. "one plus weight": in fp32, multiplied by 1 + weight.
    # "weight in fp32": the weight is applied before the cast back. "layer without bias": written out in fp32.
    norm: Literal["stock", "one plus weight", "weight in fp32", "layer without bias"] = "stock"
    norm_biases: bool = True  # of LayerNorms
    head_norms: tuple[str, str] = ("q_norm", "k_norm")
    head_norms_run: Literal["with each projection", "after projections", "after rotation"] = "with each projection"
    fused_attention: FusedAttention | None = None
    # q, k, v and out; fused: qkv and out
    attention: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
    # scaled_dot_product_attention is called without enable_gqa, and a mask is always built
    undeclared_groups: bool = False
    rotation: Rotation | None = None  # None: whole heads, or the part that ModelSpec sets
    tables: Literal["in the model's type", "in fp32", "half as wide"] = "in the model's type"
    local_tables: bool = False  # sliding layers have their own rotary table
    plain_mlp: tuple[str, str] = ("up_proj", "down_proj")
    feed_forward: str = "mlp"  # the name of the feed-forward module
    gated_mlp: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    fused_mlp: tuple[str, str] = ("gate_up_proj", "down_proj")
    written_out: bool = False  # attention has no fused kernel, whatever the run names
    # the mixer that replaces attention, by kind of layer (an entry of layer_types); other kinds have attention
    mixers: Mapping[str, Mixer] = field(default_factory=dict)
    linear: Literal["linear", "transposed", "bias added apart"] = "linear"
    mixture: Mixture | None = None
    # attention and MLP apply their dropout themselves; otherwise the block applies it
    drops_inside: bool = False
    embedding_dropout: Literal["its own", "hidden"] = "its own"
    drops_embeddings: bool = False  # the embeddings are freed as soon as dropout was applied
    scaled_embeddings: Literal["no", "inside", "after"] = "no"
    scaled_residuals: bool = False
    scaled_logits: bool = False
    wide_logits: bool = False  # the model itself casts them to fp32, before they are scaled or capped
    masks_by_kind: bool = False  # the mask builder gets a dictionary with positions and embeddings
    # Liger (0.8): its norm overwrites the gradient; it also replaces head norms in a model that is already built
    liger_norm_in_place: bool = True
    liger_takes_head_norms: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelType:
    """One model_type of transformers.

    `defaults`: transformers' defaults for fields that the file does not have. `fixed`: ModelSpec fields whose values
    the modelling code determines. `switches`: ModelSpec flags and the config field that enables each of them.
    """

    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, str] = field(default_factory=dict)
    window: Window = "none"
    block: Block | None = None  # if it differs from the family's
    # the number of key-value heads: that of the field, the number of heads, or a function
    kv_heads: KvHeads = "field"
    computes_head_dim: bool = False  # hidden size / heads, regardless of the file
    mlp_width: str | None = None  # a field of another name for intermediate_size; absent: four times the hidden size
    activation: tuple[str, ...] = _ACTIVATION_FIELDS  # the fields that name it, in order of priority
    read_activations: Mapping[str, str] = field(default_factory=dict)  # names that are replaced by another
    own_sizes: tuple[str, ...] = ()  # the fields that become ModelSpec.sizes
    # derives ModelSpec fields from several config fields: takes the config and the ModelSpec fields found so far
    settles: Settles | None = None
    # transformers' usual names of fields → those that this type's files have
    names: Mapping[str, str] = field(default_factory=dict)


def model_type(sizes: Sequence[int | None], **row: Any) -> ModelType:
    """Return a ModelType from its default sizes: vocabulary, MLP width, heads, key-value heads, context.

    Keys of `row` that are not fields of ModelType become defaults. Hidden size and layers have no default on purpose: a
    file without them is not a model's config, and a default would hide that.
    """
    names = ("vocab_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "max_position_embeddings")
    every = {"hidden_act": "silu", "tie_word_embeddings": False, **dict(zip(names, sizes, strict=True))}
    own = {field.name: row.pop(field.name) for field in fields(ModelType) if field.name in row}
    return ModelType(defaults=every | row, **own)
