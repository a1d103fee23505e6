"""Granite: llama that scales its embeddings, what it adds to the residual, and its logits."""

from __future__ import annotations

from dataclasses import replace

from vramwise.families.base import ATTENTION_MLP_BIAS, LLAMA_BLOCK, model_type
from vramwise.families.layout import Family

FAMILY = Family(
    name="granite",
    block=replace(LLAMA_BLOCK, scaled_embeddings="after", scaled_residuals=True, scaled_logits=True),
    types={"granite": model_type(sizes=(32000, 11008, 32, None, 2048), switches=ATTENTION_MLP_BIAS)},
)
