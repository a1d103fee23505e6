"""What sets families apart, as tables: which parts a block is made of and under which names they stand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from vramwise.ghost.model.attention import AttentionLayer, ChunkedAttention, FalconAttention, SlicedAttention
from vramwise.ghost.model.rotary import (
    Rotation,
    rotate_halves,
    rotate_in_fp32,
    rotate_inline,
    rotate_then_join,
    rotate_wide,
)

# models that hand their mask builder a dictionary with the positions and embeddings in it
MASKS_BY_KIND = frozenset(
    [
        "qwen2",
        "qwen3",
        "qwen2_moe",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gpt_oss",
        "olmo3",
        "cohere2",
        "exaone4",
        "smollm3",
        "ministral",
    ]
)
# models whose head norms Liger (0.8) replaces in a model that is already built; others keep theirs
LIGER_TAKES_HEAD_NORMS = frozenset({"exaone4", "gemma3", "gemma3_text", "qwen3_vl", "qwen3_vl_text"})
GEMMA = frozenset({"gemma", "gemma2", "gemma3"})


FUSED_ATTENTION: dict[str, tuple[Callable[..., AttentionLayer], str, str]] = {
    "phi3": (SlicedAttention, "self_attn.qkv_proj", "self_attn.o_proj"),
    "gpt_neox": (ChunkedAttention, "attention.query_key_value", "attention.dense"),
    "gpt2": (partial(ChunkedAttention, by_head=False), "attn.c_attn", "attn.c_proj"),
    "falcon": (FalconAttention, "self_attention.query_key_value", "self_attention.dense"),
}
SANDWICH = {
    "gemma2": ("input", "post_attention", "pre_feedforward", "post_feedforward"),
    "gemma3": ("input", "post_attention", "pre_feedforward", "post_feedforward"),
    "glm4": ("input", "post_self_attn", "post_attention", "post_mlp"),
}
BLOCK_NORMS = {"gpt2": ("ln_1", "ln_2"), "apertus": ("attention_layernorm", "feedforward_layernorm")}
# families whose attention and feed-forward layers end with their dropout; in the others the block applies it
DROPS_INSIDE = frozenset({"starcoder2", "gpt2", "llama"})
PARALLEL_ORDER: dict[str, Literal["attention, mlp", "residual, (mlp, attention)", "residual, attention"]] = {
    "phi": "attention, mlp",
    "falcon": "residual, (mlp, attention)",
    "cohere": "residual, attention",
}
ROTATIONS: dict[str, Rotation] = {
    "gpt_neox": rotate_then_join,
    "phi": rotate_inline,
    "olmo2": rotate_wide,
    "gpt_oss": rotate_halves,
    "cohere": rotate_in_fp32,
}
# the two matrices of plain feed-forward layers
PLAIN_MLP = {
    "phi": ("fc1", "fc2"),
    "starcoder2": ("c_fc", "c_proj"),
    "gpt2": ("c_fc", "c_proj"),
    "gpt_neox": ("dense_h_to_4h", "dense_4h_to_h"),
    "falcon": ("dense_h_to_4h", "dense_4h_to_h"),
}
