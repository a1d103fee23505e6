"""Shapes of models that scripts are run with on a card: real widths, few layers."""

from __future__ import annotations

from typing import Any

_LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-05}
_MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None}
_QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "rms_norm_eps": 1e-06}
_QWEN3 = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "rms_norm_eps": 1e-06}


def shape(base: dict[str, Any], numbers: str, **more: Any) -> dict[str, Any]:
    """A config: hidden, inner, layers, heads, key-value heads, width of a head and vocabulary, in this order."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    values = [int(one) for one in numbers.split()]
    return {**base, **dict(zip((*names, "head_dim", "vocab_size"), values, strict=True)), **more}


_LONG = {"max_position_embeddings": 32768, "tie_word_embeddings": False}
SHAPES = {
    "llama8b4": shape(_LLAMA, "4096 14336 4 32 8 128 128256", **_LONG),
    "llama1b8": shape(_LLAMA, "2048 8192 8 32 8 64 128256", **_LONG | {"tie_word_embeddings": True}),
    "mistral7b6": shape(_MISTRAL, "4096 14336 6 32 8 128 32768", **_LONG),
    "nemo3": shape(_MISTRAL, "5120 14336 3 32 8 128 131072", **_LONG),
    "qwen2_7b4": shape(_QWEN2, "3584 18944 4 28 4 128 152064", **_LONG),
    "qwen2_05b": shape(_QWEN2, "896 4864 24 14 2 64 151936", **_LONG | {"tie_word_embeddings": True}),
    "qwen3_14b3": shape(
        _QWEN3,
        "5120 17408 3 40 8 128 151936",
        **_LONG,
    ),
    "gemma7b4": shape(
        {"model_type": "gemma", "architectures": ["GemmaForCausalLM"], "hidden_activation": "gelu_pytorch_tanh"},
        "3072 24576 4 16 16 256 256000",
        max_position_embeddings=8192,
    ),
    "gemma2_2b8": shape(
        {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "sliding_window": 4096},
        "2304 9216 8 8 4 256 256000",
        max_position_embeddings=8192,
    ),
    "gemma3_270m": shape(
        {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "sliding_window": 512},
        "640 2048 18 4 1 256 262144",
        max_position_embeddings=32768,
    ),
    "phi3_mini6": shape(
        {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "sliding_window": None},
        "3072 8192 6 32 32 96 32064",
        **_LONG,
    ),
    # Unsloth's copies of Phi-3 are in Mistral's layout.
    "phi3_mistral6": shape(_MISTRAL, "3072 8192 6 32 32 96 32064", **_LONG),
    "mistral22b2": shape(_MISTRAL, "6144 16384 2 48 8 128 32768", **_LONG),
    "qwen3_4b8": shape(_QWEN3, "2560 9728 8 32 8 128 151936", **_LONG | {"tie_word_embeddings": True}),
    "gemma2_9b3": shape(
        {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "sliding_window": 4096},
        "3584 14336 3 16 8 256 256000",
        max_position_embeddings=8192,
    ),
}
