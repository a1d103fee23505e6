"""What `llamafactory-cli train` refuses before it loads anything: `get_train_args` and the dataclasses' own checks.

Each refusal is a key and a sentence. Read in hparams/*.py of 0.9.4 and 0.9.5; differences are noted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.rules.base import Hit
from vramwise.trainers.arguments.refusals import Held
from vramwise.trainers.llamafactory.keys import since, vocabulary
from vramwise.trainers.llamafactory.resolve.adapter import names
from vramwise.types import RunSpec

_PROJECTED = ("use_galore", "use_apollo", "use_badam")
_LORA_ONLY = ("loraplus_lr_ratio", "use_rslora", "use_dora", "pissa_init")
_TINY = 1e-6


def refusals(run: RunSpec) -> Iterator[Hit]:
    """Yield every refusal that applies to the file."""
    has = Held(run, vocabulary(run.target.stack))
    for found in (_data, _stages, _method, _model, _spread, _card):
        yield from found(run, has)


def _data(run: RunSpec, has: Held) -> Iterator[Hit]:
    held, stream, probs = has.number("val_size") > _TINY, bool(has("streaming")), has("interleave_probs")
    evaluates = bool(has("do_eval") or has("do_predict") or has("predict_with_generate"))
    evaluates = evaluates or has("eval_strategy") not in (None, False, "no")
    own, counts = has("eval_dataset"), len(names(probs))
    mixed = probs is not None and has("mix_strategy") != "concat"
    if has("do_train") and has("dataset") is None:
        yield Hit("do_train without a dataset: there is nothing to train on", "do_train")
    if held and has("dataset") is None:
        yield Hit("val_size without a dataset: there is nothing to split", "val_size")
    if held and own is not None:
        yield Hit("val_size and eval_dataset are both set: use only one", "val_size")
    if evaluates and not held and own is None:
        yield Hit(
            "evaluation is on, but neither val_size nor eval_dataset provides data",
            "eval_strategy" if "eval_strategy" in run.config else "do_eval",
        )
    if probs is not None and not mixed:
        yield Hit("interleave_probs needs an interleaving mix_strategy: concat does not use it", "interleave_probs")
    for key in ("dataset", "eval_dataset"):
        if mixed and has(key) is not None and len(names(has(key))) != counts:
            yield Hit(
                f"interleave_probs has {counts} shares for {len(names(has(key)))} datasets of {key}", "interleave_probs"
            )
    if mixed and not _shares(probs):
        yield Hit("interleave_probs must be numbers", "interleave_probs")
    if stream and held and has.number("val_size") < 1:
        yield Hit("val_size is a fraction of a stream, which has no length: use a number of samples", "val_size")
    if stream and has("max_samples") is not None:
        yield Hit("max_samples does not work with a stream: use max_steps", "max_samples")
    if stream and has.number("max_steps") == -1:
        yield Hit("streaming without max_steps: a stream has no end", "streaming")
    if has("mask_history") and has("train_on_prompt"):
        yield Hit("mask_history and train_on_prompt are both on", "mask_history")


def _shares(written: Any) -> bool:
    try:
        return bool([float(one) for one in names(written)])
    except ValueError:
        return False


def _stages(run: RunSpec, has: Held) -> Iterator[Hit]:
    stage, generates = has("stage"), bool(has("predict_with_generate"))
    if stage != "sft":
        for key in ("predict_with_generate", "neat_packing", "train_on_prompt", "mask_history"):
            if has(key):
                yield Hit(f"{key} in stage {stage}: it belongs to sft", key)
    ppo = stage == "ppo"
    lora_reward = ppo and has("reward_model_type") == "lora"
    if stage == "sft" and has("do_predict") and not generates:
        yield Hit("do_predict without predict_with_generate: predictions are generated", "do_predict")
    if stage in ("rm", "ppo") and has("load_best_model_at_end"):
        yield Hit(f"load_best_model_at_end in stage {stage}", "load_best_model_at_end")
    if ppo and not has("reward_model"):
        yield Hit("stage ppo without a reward_model", "stage")
    if ppo and not has("do_train"):
        yield Hit("stage ppo without do_train", "stage")
    if ppo and has("shift_attn"):
        yield Hit("shift_attn in stage ppo", "shift_attn")
    if lora_reward and has("finetuning_type") != "lora":
        yield Hit(
            f"reward_model_type lora beside finetuning_type {has('finetuning_type')}: use full or api",
            "reward_model_type",
        )
    if lora_reward and has("use_unsloth"):
        yield Hit("use_unsloth with a reward model that is an adapter", "use_unsloth")
    if stage == "dpo" and has("pref_loss") != "sigmoid" and has.number("dpo_label_smoothing") > _TINY:
        yield Hit(
            f"dpo_label_smoothing with pref_loss {has('pref_loss')}: it belongs to sigmoid", "dpo_label_smoothing"
        )
    if generates and has("compute_accuracy"):
        yield Hit("compute_accuracy and predict_with_generate are both on", "compute_accuracy")
    if (
        has("neat_packing")
        and not since(run.target.stack, 0, 9, 5)
        and run.target.stack.parts("transformers") > (4, 53)
    ):
        yield Hit(
            "neat_packing does not work in LLaMA-Factory 0.9.4 with transformers above 4.53; 0.9.5 supports it",
            "neat_packing",
        )


def _method(run: RunSpec, has: Held) -> Iterator[Hit]:
    kind, stage = has("finetuning_type"), has("stage")
    projected = [key for key in _PROJECTED if has(key)]
    reference = stage == "dpo" and has("pref_loss") not in ("orpo", "simpo")
    if kind != "lora":
        yield from (
            Hit(f"{key} with finetuning_type {kind}: it belongs to lora", key) for key in _LORA_ONLY if has(key)
        )
    if kind == "lora":
        yield from (Hit(f"{key} with finetuning_type lora: it is for full or freeze", key) for key in projected)
    for key in ("ref_model_quantization_bit", "reward_model_quantization_bit"):
        if has(key) not in (None, 4, 8):
            yield Hit(f"{key} {has(key)}: only 4 and 8 are supported", key)
    if len(projected) > 1:
        yield Hit(f"{' and '.join(projected)}: use only one", projected[-1])
    if has("use_llama_pro") and kind == "full":
        yield Hit("use_llama_pro with finetuning_type full", "use_llama_pro")
    if has("pissa_init") and (stage in ("ppo", "kto") or reference):
        yield Hit(f"pissa_init in stage {stage}: switching the adapter off would not restore the base", "pissa_init")


def _model(run: RunSpec, has: Held) -> Iterator[Hit]:
    kind, adapters = has("finetuning_type"), names(has("adapter_name_or_path"))
    if has("model_name_or_path") is None:
        yield Hit("no model is set", "model_name_or_path")
    if adapters and kind != "lora":
        yield Hit(f"adapter_name_or_path with finetuning_type {kind}", "adapter_name_or_path")
    if has("flash_attn") == "fa3":
        yield Hit("flash_attn fa3: not supported yet", "flash_attn")
    if has("infer_backend") != "huggingface":
        yield Hit("infer_backend must be huggingface in training", "infer_backend")
    for of in ("image", "video"):
        if has.number(f"{of}_max_pixels") < has.number(f"{of}_min_pixels"):
            yield Hit(f"{of}_max_pixels below {of}_min_pixels", f"{of}_max_pixels")
    if has("export_quantization_bit") is not None and has("export_quantization_dataset") is None:
        yield Hit("export_quantization_bit without export_quantization_dataset", "export_quantization_bit")
    if has("quantization_bit") is None:
        return
    if kind not in ("lora", "oft"):
        yield Hit(f"quantization_bit with finetuning_type {kind}", "quantization_bit")
    if has("pissa_init"):
        yield Hit("pissa_init on a quantised base: run scripts/pissa_init.py beforehand", "pissa_init")
    if has("resize_vocab"):
        yield Hit("resize_vocab on a quantised base", "resize_vocab")
    if adapters and has("create_new_adapter"):
        yield Hit("create_new_adapter on a quantised base", "create_new_adapter")
    if len(adapters) > 1:
        yield Hit("several adapters on a quantised base: merge them first", "adapter_name_or_path")
    if has("fp8"):
        yield Hit("fp8 and quantization_bit are both set", "fp8")
    if has("do_train") and has("quantization_device_map") == "auto":
        yield Hit("quantization_device_map auto in training", "quantization_device_map")


def _spread(run: RunSpec, has: Held) -> Iterator[Hit]:
    zero3 = run.sharding.kind == "zero3"
    several = run.batch.gpus > 1 or bool(has("deepspeed"))
    if zero3:
        for key in ("pissa_init", "pure_bf16", "use_unsloth", "use_kt", "predict_with_generate"):
            if has(key):
                yield Hit(f"{key} under ZeRO 3", key)
    if has("deepspeed"):
        yield from (Hit(f"{key} with DeepSpeed", key) for key in ("use_galore", "use_apollo") if has(key))
    layerwise = [key for key in ("galore", "apollo") if has(f"use_{key}") and has(f"{key}_layerwise")]
    if several:
        yield from (Hit(f"{key}_layerwise on several cards", f"{key}_layerwise") for key in layerwise)
    by_share = has("badam_mode") == "ratio"
    if several and has("use_badam") and by_share:
        yield Hit("badam_mode ratio on several cards", "badam_mode")
    if several and has("use_badam") and not by_share and not zero3:
        yield Hit("use_badam on several cards without ZeRO 3", "use_badam")


def _card(run: RunSpec, has: Held) -> Iterator[Hit]:
    gpu = run.target.gpu
    if has("pure_bf16") and gpu is not None and gpu.known and not gpu.bf16:
        yield Hit(f"pure_bf16 on {gpu.name}, which has no bf16", "pure_bf16")
