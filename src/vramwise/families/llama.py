"""Llama: norm → attention → add, norm → MLP → add; separate q, k, v and o. And those that differ by a flag."""

from __future__ import annotations

from vramwise.families.base import ATTENTION_BIAS, ATTENTION_MLP_BIAS, ModelType, model_type
from vramwise.families.layout import Family

# For a model_type that no file lists: read as llama, with nothing assumed about sizes.
ASSUMED = ModelType(defaults={"hidden_act": "silu", "tie_word_embeddings": False}, switches=ATTENTION_MLP_BIAS)

FAMILY = Family(
    name="llama",
    types={
        "llama": model_type(sizes=(32000, 11008, 32, None, 2048), switches=ATTENTION_MLP_BIAS),
        "seed_oss": model_type(
            sizes=(155136, 27648, 80, 8, 524288),
            switches={"qkv_bias": "attention_bias", "attention_out_bias": "attention_out_bias", "mlp_bias": "mlp_bias"},
            attention_bias=True,
            head_dim=128,
            attention_dropout=0.1,
            residual_dropout=0.1,
        ),
        "arcee": model_type(
            sizes=(32000, 18432, 32, None, 4096),
            fixed={"gated_mlp": False},
            switches=ATTENTION_MLP_BIAS,
            hidden_act="relu2",
        ),
        "olmo": model_type(
            sizes=(50304, 11008, 32, None, 2048), fixed={"norm": "layer_no_affine"}, switches=ATTENTION_BIAS
        ),
    },
)
