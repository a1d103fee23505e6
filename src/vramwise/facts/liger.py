"""Which kernels Liger has, by transformers' model_type.

Source: MODEL_TYPE_TO_APPLY_LIGER_FN and the functions it names, in `monkey_patch.py` of liger-kernel 0.8.1 and 0.8.4;
text models whose kernels both have. Multimodal models and those that a release skips with a warning are left out.
"""

from __future__ import annotations

_ALL = ("rope", "rms_norm", "glu_activation")
# Experts do not use the model's MLP class: its kernel has no effect that a prediction models.
_MIXTURES = ("rope", "rms_norm")
_DENSE_TYPES = (
    *("llama", "mistral", "ministral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gemma3_text", "phi3", "granite"),
    *("olmo2", "olmo3", "glm4", "smollm3", "exaone4", "hunyuan_v1_dense"),
)
_KERNELS = {**dict.fromkeys(_DENSE_TYPES, _ALL), **dict.fromkeys(("mixtral", "qwen3_moe"), _MIXTURES)}


def liger_kernels(model_type: str | None) -> tuple[str, ...]:
    """Return the kernels besides the loss that Liger has for a model; empty if none or the model is unknown."""
    return _KERNELS.get(model_type or "", ())


def has_fused_loss(model_type: str | None) -> bool:
    """Return whether Liger supports fused linear cross entropy for the model."""
    return model_type in _KERNELS
