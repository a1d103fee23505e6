"""Write tests/data/parameter_counts.json: what transformers itself says the parameters of every family are.

Needs torch and transformers; the tests that read the file do not. Models are built on the meta device, without weights.

    python scripts/golden_parameters.py
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "data" / "parameter_counts.json"
sys.path.insert(0, str(ROOT / "src"))

_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SMALL = {
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
# Types that need more than the common fields, or other ones: their cases are written out below. The text models of
# multimodal Qwens have no class of their own.
_WRITTEN_OUT = (
    "ministral", "ministral3", "hunyuan_v1_dense", "gpt2", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "glm4_moe",
    "gpt_oss", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3_vl_text",
)  # fmt: skip
_VISION = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 56,
}


def small_cases() -> Iterable[dict[str, Any]]:
    """Configs of a few layers: each type as it is, then what its switches change."""
    from vramwise.families import all_model_types

    for kind in all_model_types():
        if kind not in _WRITTEN_OUT:
            yield {"model_type": kind, **_SMALL}
    yield {"model_type": "ministral", **_SMALL, "head_dim": 16}
    yield {"model_type": "ministral3", **_SMALL, "head_dim": 16}
    yield {"model_type": "hunyuan_v1_dense", **_SMALL, "head_dim": 16}
    yield {"model_type": "llama", **_SMALL, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    yield {"model_type": "llama", **_SMALL, "head_dim": 24}
    yield {"model_type": "qwen3", **_SMALL, "attention_bias": True}
    yield {"model_type": "seed_oss", **_SMALL, "attention_out_bias": True, "mlp_bias": True}
    yield {"model_type": "stablelm", **_SMALL, "use_qkv_bias": True, "qk_layernorm": True}
    yield {"model_type": "stablelm", **_SMALL, "use_parallel_residual": True}
    yield {"model_type": "phi", **_SMALL, "qk_layernorm": True}
    yield {"model_type": "cohere", **_SMALL, "use_qk_norm": True}
    yield {"model_type": "gpt_neox", **_SMALL, "attention_bias": False, "tie_word_embeddings": True}
    yield {"model_type": "starcoder2", **_SMALL, "use_bias": False, "tie_word_embeddings": False}
    yield {"model_type": "falcon", **_SMALL, "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True}
    falcon = {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}
    yield {"model_type": "falcon", **_SMALL, **falcon}
    yield {"model_type": "falcon", **_SMALL, "multi_query": False, "parallel_attn": False, "alibi": True}
    yield {"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 100, "n_positions": 128}
    yield {"model_type": "mixtral", **_SMALL, "num_local_experts": 4}
    yield {"model_type": "olmoe", **_SMALL, "num_experts": 4}
    shared = {"shared_expert_intermediate_size": 80, "mlp_only_layers": [1]}
    yield {"model_type": "qwen2_moe", **_SMALL, **_EXPERTS, **shared}
    yield {"model_type": "qwen3_moe", **_SMALL, **_EXPERTS, "decoder_sparse_step": 2, "head_dim": 32}
    glm = {"n_routed_experts": 4, "n_shared_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
    yield {"model_type": "glm4_moe", **_SMALL, **glm, "head_dim": 16, "use_qk_norm": True}
    yield {"model_type": "gpt_oss", **_SMALL, "num_local_experts": 4, "head_dim": 16}
    yield from _multimodal_cases()


def _multimodal_cases() -> Iterable[dict[str, Any]]:
    text = {"model_type": "gemma3_text", **_SMALL, **_TOKENS}
    siglip = {"model_type": "siglip_vision_model", **_VISION, "patch_size": 14, "vision_use_head": False}
    # What a gemma3 config needs besides: image tokens that divide the patches.
    gemma = {"mm_tokens_per_image": 4, "image_token_index": 5, "boi_token_index": 6, "eoi_token_index": 7}
    yield {"model_type": "gemma3", "text_config": text, "vision_config": siglip, **gemma}
    with_head = {**siglip, "vision_use_head": True}
    yield {"model_type": "gemma3", "text_config": text, "vision_config": with_head, **gemma}
    llama = {"model_type": "llama", **_SMALL, **_TOKENS}
    clip = {"model_type": "clip_vision_model", **_VISION, "patch_size": 14}
    yield {"model_type": "llava", "text_config": llama, "vision_config": clip, "image_token_index": 5}
    mistral = {"model_type": "mistral", **_SMALL, **_TOKENS}
    pixtral = {"model_type": "pixtral", **_VISION, "patch_size": 14, "head_dim": 12}
    yield {
        "model_type": "mistral3",
        "text_config": mistral,
        "vision_config": pixtral,
        "image_token_index": 5,
        "tie_word_embeddings": False,
    }


def named_shapes(config: Mapping[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """The names and shapes of the parameters of the model transformers builds from this config, in its order."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText

    fields = {key: value for key, value in config.items() if key != "model_type"}
    made = CONFIG_MAPPING[config["model_type"]](**fields)
    auto = AutoModelForImageTextToText if "text_config" in config else AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(made)
    return [(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()]


def digest(shapes: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    """A short fingerprint of names, shapes and order."""
    text = "\n".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _entry(config: Mapping[str, Any]) -> dict[str, Any]:
    from math import prod

    shapes = named_shapes(config)
    return {"count": sum(prod(shape) for _, shape in shapes), "tensors": len(shapes), "digest": digest(shapes)}


def main() -> None:
    """Build every case and write the file."""
    import transformers

    from vramwise.facts.models import catalogue_shapes
    from vramwise.files import write_new

    transformers.utils.logging.set_verbosity_error()
    small = [config if "text_config" in config else {**config, **_TOKENS} for config in small_cases()]
    lines = [json.dumps({"config": config, **_entry(config)}) for config in small]
    real = [json.dumps({"id": shape["ids"][0], **_entry(shape["config"])}) for shape in catalogue_shapes()]
    text = (
        f'{{\n"transformers": "{transformers.__version__}",\n"small": [\n'
        + ",\n".join(lines)
        + '\n],\n"real": [\n'
        + ",\n".join(real)
        + "\n]\n}\n"
    )
    json.loads(text)
    write_new(GOLDEN, text.encode("utf-8"))
    print(f"{len(lines)} small and {len(real)} real models in {GOLDEN.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
