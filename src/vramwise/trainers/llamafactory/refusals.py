"""What `llamafactory-cli train` refuses before it loads anything: `get_train_args` and the dataclasses' own checks.

Each refusal is a key and a sentence. Read in hparams/*.py of 0.9.4 and 0.9.5; differences are noted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.rules.rows import Refusal, refused_where
from vramwise.trainers.arguments.refusals import Held
from vramwise.trainers.llamafactory.keys import since, vocabulary
from vramwise.trainers.llamafactory.resolve.adapter import names
from vramwise.types import RunSpec

_PROJECTED = ("use_galore", "use_apollo", "use_badam")
_LORA_ONLY = ("loraplus_lr_ratio", "use_rslora", "use_dora", "pissa_init")
_TINY = 1e-6


def refusals(run: RunSpec) -> Iterator[Refusal]:
    """Yield every refusal that applies to the file."""
    has = Held(run, vocabulary(run.target.stack))
    for found in (_data, _stages, _method, _model, _spread, _card):
        yield from found(run, has)


def _data(run: RunSpec, has: Held) -> Iterator[Refusal]:
    held, stream, probs = has.number("val_size") > _TINY, bool(has("streaming")), has("interleave_probs")
    evaluates = bool(has("do_eval") or has("do_predict") or has("predict_with_generate"))
    evaluates = evaluates or has("eval_strategy") not in (None, False, "no")
    own, counts = has("eval_dataset"), len(names(probs))
    mixed = probs is not None and has("mix_strategy") != "concat"
    yield from refused_where(
        (
            has("do_train") and has("dataset") is None,
            "do_train",
            "do_train without a dataset: there is nothing to train on",
        ),
        (held and has("dataset") is None, "val_size", "val_size without a dataset: there is nothing to split"),
        (held and own is not None, "val_size", "val_size and eval_dataset are both set: use only one"),
        (
            evaluates and not held and own is None,
            "eval_strategy" if "eval_strategy" in run.config else "do_eval",
            "evaluation is on, but neither val_size nor eval_dataset provides data",
        ),
        (
            probs is not None and not mixed,
            "interleave_probs",
            "interleave_probs needs an interleaving mix_strategy: concat does not use it",
        ),
        *(
            (
                mixed and has(key) is not None and len(names(has(key))) != counts,
                "interleave_probs",
                f"interleave_probs has {counts} shares for {len(names(has(key)))} datasets of {key}",
            )
            for key in ("dataset", "eval_dataset")
        ),
        (mixed and not _shares(probs), "interleave_probs", "interleave_probs must be numbers"),
        (
            stream and held and has.number("val_size") < 1,
            "val_size",
            "val_size is a fraction of a stream, which has no length: use a number of samples",
        ),
        (
            stream and has("max_samples") is not None,
            "max_samples",
            "max_samples does not work with a stream: use max_steps",
        ),
        (stream and has.number("max_steps") == -1, "streaming", "streaming without max_steps: a stream has no end"),
        (
            has("mask_history") and has("train_on_prompt"),
            "mask_history",
            "mask_history and train_on_prompt are both on",
        ),
    )


def _shares(written: Any) -> bool:
    try:
        return bool([float(one) for one in names(written)])
    except ValueError:
        return False


def _stages(run: RunSpec, has: Held) -> Iterator[Refusal]:
    stage, generates = has("stage"), bool(has("predict_with_generate"))
    if stage != "sft":
        for key in ("predict_with_generate", "neat_packing", "train_on_prompt", "mask_history"):
            if has(key):
                yield key, f"{key} in stage {stage}: it belongs to sft"
    ppo = stage == "ppo"
    lora_reward = ppo and has("reward_model_type") == "lora"
    yield from refused_where(
        (
            stage == "sft" and has("do_predict") and not generates,
            "do_predict",
            "do_predict without predict_with_generate: predictions are generated",
        ),
        (
            stage in ("rm", "ppo") and has("load_best_model_at_end"),
            "load_best_model_at_end",
            f"load_best_model_at_end in stage {stage}",
        ),
        (ppo and not has("reward_model"), "stage", "stage ppo without a reward_model"),
        (ppo and not has("do_train"), "stage", "stage ppo without do_train"),
        (ppo and has("shift_attn"), "shift_attn", "shift_attn in stage ppo"),
        (
            lora_reward and has("finetuning_type") != "lora",
            "reward_model_type",
            f"reward_model_type lora beside finetuning_type {has('finetuning_type')}: use full or api",
        ),
        (lora_reward and has("use_unsloth"), "use_unsloth", "use_unsloth with a reward model that is an adapter"),
        (
            stage == "dpo" and has("pref_loss") != "sigmoid" and has.number("dpo_label_smoothing") > _TINY,
            "dpo_label_smoothing",
            f"dpo_label_smoothing with pref_loss {has('pref_loss')}: it belongs to sigmoid",
        ),
        (
            generates and has("compute_accuracy"),
            "compute_accuracy",
            "compute_accuracy and predict_with_generate are both on",
        ),
        (
            has("neat_packing")
            and not since(run.target.stack, 0, 9, 5)
            and run.target.stack.parts("transformers") > (4, 53),
            "neat_packing",
            "neat_packing does not work in LLaMA-Factory 0.9.4 with transformers above 4.53; 0.9.5 supports it",
        ),
    )


def _method(run: RunSpec, has: Held) -> Iterator[Refusal]:
    kind, stage = has("finetuning_type"), has("stage")
    projected = [key for key in _PROJECTED if has(key)]
    reference = stage == "dpo" and has("pref_loss") not in ("orpo", "simpo")
    if kind != "lora":
        yield from ((key, f"{key} with finetuning_type {kind}: it belongs to lora") for key in _LORA_ONLY if has(key))
    if kind == "lora":
        yield from ((key, f"{key} with finetuning_type lora: it is for full or freeze") for key in projected)
    for key in ("ref_model_quantization_bit", "reward_model_quantization_bit"):
        if has(key) not in (None, 4, 8):
            yield key, f"{key} {has(key)}: only 4 and 8 are supported"
    yield from refused_where(
        (len(projected) > 1, projected[-1] if projected else "", f"{' and '.join(projected)}: use only one"),
        (has("use_llama_pro") and kind == "full", "use_llama_pro", "use_llama_pro with finetuning_type full"),
        (
            has("pissa_init") and (stage in ("ppo", "kto") or reference),
            "pissa_init",
            f"pissa_init in stage {stage}: switching the adapter off would not restore the base",
        ),
    )


def _model(run: RunSpec, has: Held) -> Iterator[Refusal]:
    kind, adapters = has("finetuning_type"), names(has("adapter_name_or_path"))
    yield from refused_where(
        (has("model_name_or_path") is None, "model_name_or_path", "no model is set"),
        (adapters and kind != "lora", "adapter_name_or_path", f"adapter_name_or_path with finetuning_type {kind}"),
        (has("flash_attn") == "fa3", "flash_attn", "flash_attn fa3: not supported yet"),
        (has("infer_backend") != "huggingface", "infer_backend", "infer_backend must be huggingface in training"),
        *(
            (
                has.number(f"{kind}_max_pixels") < has.number(f"{kind}_min_pixels"),
                f"{kind}_max_pixels",
                f"{kind}_max_pixels below {kind}_min_pixels",
            )
            for kind in ("image", "video")
        ),
        (
            has("export_quantization_bit") is not None and has("export_quantization_dataset") is None,
            "export_quantization_bit",
            "export_quantization_bit without export_quantization_dataset",
        ),
    )
    if has("quantization_bit") is None:
        return
    yield from refused_where(
        (kind not in ("lora", "oft"), "quantization_bit", f"quantization_bit with finetuning_type {kind}"),
        (has("pissa_init"), "pissa_init", "pissa_init on a quantised base: run scripts/pissa_init.py beforehand"),
        (has("resize_vocab"), "resize_vocab", "resize_vocab on a quantised base"),
        (adapters and has("create_new_adapter"), "create_new_adapter", "create_new_adapter on a quantised base"),
        (len(adapters) > 1, "adapter_name_or_path", "several adapters on a quantised base: merge them first"),
        (has("fp8"), "fp8", "fp8 and quantization_bit are both set"),
        (
            has("do_train") and has("quantization_device_map") == "auto",
            "quantization_device_map",
            "quantization_device_map auto in training",
        ),
    )


def _spread(run: RunSpec, has: Held) -> Iterator[Refusal]:
    zero3 = run.sharding.kind == "zero3"
    several = run.batch.gpus > 1 or bool(has("deepspeed"))
    if zero3:
        for key in ("pissa_init", "pure_bf16", "use_unsloth", "use_kt", "predict_with_generate"):
            if has(key):
                yield key, f"{key} under ZeRO 3"
    if has("deepspeed"):
        yield from ((key, f"{key} with DeepSpeed") for key in ("use_galore", "use_apollo") if has(key))
    layerwise = [key for key in ("galore", "apollo") if has(f"use_{key}") and has(f"{key}_layerwise")]
    if several:
        yield from ((f"{key}_layerwise", f"{key}_layerwise on several cards") for key in layerwise)
    by_share = has("badam_mode") == "ratio"
    yield from refused_where(
        (several and has("use_badam") and by_share, "badam_mode", "badam_mode ratio on several cards"),
        (
            several and has("use_badam") and not by_share and not zero3,
            "use_badam",
            "use_badam on several cards without ZeRO 3",
        ),
    )


def _card(run: RunSpec, has: Held) -> Iterator[Refusal]:
    gpu = run.target.gpu
    if has("pure_bf16") and gpu is not None and gpu.known and not gpu.bf16:
        yield "pure_bf16", f"pure_bf16 on {gpu.name}, which has no bf16"
