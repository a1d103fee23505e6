"""Gemma: llama with norms that multiply in fp32 by (1 + weight) and embeddings scaled inside their layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.families.base import ATTENTION_BIAS, Block, model_type
from vramwise.families.layout import Family

BLOCK = Block(norm="one plus weight", scaled_embeddings="inside")
DEFAULTS: Mapping[str, Any] = {"hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True, "head_dim": 256}

FAMILY = Family(
    name="gemma",
    block=BLOCK,
    types={
        "gemma": model_type(
            sizes=(256000, 24576, 16, 16, 8192),
            switches=ATTENTION_BIAS,
            # The first files say "gelu" where the tanh approximation is meant; transformers reads them so.
            read_activations={"gelu": "gelu_pytorch_tanh"},
            **DEFAULTS,
        )
    },
)
