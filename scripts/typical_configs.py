"""Configs of model types as real models have them: the type's defaults, and fields that every published config sets.

Some types' default configs do not run: a field without a default value decides a shape. The values here are those of a
published model of the type, or of the size of its other defaults.
"""

from __future__ import annotations

from typing import Any

_ROTARY = {"rope_type": "default", "rope_theta": 10000.0}

FIELDS: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {"rope_parameters": {"full_attention": _ROTARY}},
    "deepseek_v2": {
        "moe_intermediate_size": 1408,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
    },
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "qwen4_exp_text": {
        "indexer_budget": 2048,
        "indexer_compress_ratio": 16,
        "indexer_head_dim": 256,
        "indexer_kv_heads": 1,
        "indexer_n_heads": 16,
    },
    "reformer": {"is_decoder": True},
    "xmod": {"default_language": "en_XX"},
}


def typical_config(name: str, **fields: Any) -> Any:
    """The config of a type as an object, with further fields in place of its own."""
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[name](**{**FIELDS.get(name, {}), **fields})
