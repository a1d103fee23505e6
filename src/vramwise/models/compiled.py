"""Programs of compiled models that ship with vramwise: what Inductor's code allocates, by model type and way to train.

`scripts/compiled` records them: torch compiles a model of five layers for a card that does not exist. `ghost/compiled`
replays them.
"""

from __future__ import annotations

import json
import zlib
from base64 import b85decode
from collections.abc import Mapping
from functools import cache
from typing import Any

from vramwise.bundled import bundled_json
from vramwise.models.parameters import parameters
from vramwise.types import ModelSpec, RunSpec

FILE = "models/compiled_programs.json"


class Program:
    """One program. Compared by identity: there is one object each.

    `halves`: forward and backward in parts; a part runs once or for a range of layers, and its rows allocate (a size
    and where the buffer ends), free (0) or launch a kernel (name, bytes read and written, sides). Sizes and names are
    numbers of `words`. `gradients`: where the gradients of parameters are made. `returns`: the same of loss and logits.
    """

    __slots__ = ("gradients", "halves", "returns", "words")

    def __init__(self, rows: Mapping[str, Any]) -> None:
        self.halves: list[list[dict[str, Any]]] = rows["halves"]
        self.words: list[str] = rows["words"]
        self.gradients: list[Any] = rows["gradients"]
        self.returns: list[Any] = rows["returns"]


@cache
def _program(key: str) -> Program | None:
    packed = bundled_json(FILE)["programs"].get(key)
    return None if packed is None else Program(json.loads(zlib.decompress(b85decode(packed))))


# mistral's code is llama's, but for the window of its mask
_ALIKE = {"mistral": "llama"}
_HOPPER, _CUDNN = (9, 0), (2, 9)


def compiled_program(run: RunSpec, model: ModelSpec) -> Program | None:
    """Return the program of a run whose whole model is one compiled graph; None if there is none, or it is not."""
    kernels, savings = run.kernels, run.savings
    if not kernels.torch_compile:
        return None
    gpu = run.target.gpu
    one_graph = (
        kernels.compile_mode == "default"
        and kernels.attn_implementation == "sdpa"
        and kernels.loss_kernel == "stock"
        and not kernels.liger
        and not savings.tiled_mlp
        and savings.activation_offloading == "off"
        and run.loading.quantization is None
        and run.shapes.packing_rows == "none"
        and run.shapes.constant_shapes
        and run.objective.kind == "tokens"
        and run.sharding.kind == "none"
        and run.precision.half == "bf16"
        and run.target.torch >= _CUDNN
        and gpu is not None
        and gpu.capability == _HOPPER
    )
    trained = _adapter(run)
    if not one_graph or trained is None or model.trace is not None or model.sliding_window:
        return None
    # keys are repeated for groups of heads, and only qwen2's layers have biases
    biased = model.model_type != "qwen2" and any(one.kind == "bias" for one in parameters(model))
    if model.num_attention_heads == model.num_key_value_heads or biased:
        return None
    all_wide = run.precision.weights_dtype == "fp32" or (run.loading.trains_in_fp32 and not trained)
    wide = "wide" if all_wide else "fp32 ends" if run.precision.fp32_embeddings else "half"
    words = [
        _ALIKE.get(model.model_type, model.model_type),
        wide,
        *([trained] if trained else ["tied"] if model.tie_word_embeddings else []),
        *(["checkpointing"] if savings.recompute else []),
        # fused LoRA kernels do not call fp8 layers
        *([f"fp8 {run.precision.fp8_scaling}"] if run.precision.compute == "fp8" and "kernels" not in trained else []),
    ]
    return _program(", ".join(words))


def _adapter(run: RunSpec) -> str | None:
    """Return the word for what is trained: the model, plain LoRA, or LoRA with all fused kernels; None for others."""
    adapter = run.adapter
    if adapter.kind is None:
        return None if adapter.unfrozen else ""
    half = adapter.adapters_as_base or adapter.half_adapters
    if adapter.kind != "lora" or adapter.use_dora or adapter.lora_dropout or adapter.lora_modules_to_save or half:
        return None
    return "lora kernels" if {"mlp", "qkv", "o"} <= {*adapter.fused_lora} else None if adapter.fused_lora else "lora"
