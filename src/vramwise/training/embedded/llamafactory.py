"""LLaMA-Factory's files under the embedded engine: stage sft, unpacked, LoRA or full, plain templates.

Follows data/ and train/sft of 0.9.5. The only file read here is `dataset_info.json`, which says what a dataset's name
refers to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vramwise.bundled import bundled_json
from vramwise.errors import ConfigError, VramwiseError
from vramwise.trainers.llamafactory.keys import vocabulary
from vramwise.trainers.llamafactory.resolve.adapter import names
from vramwise.training.embedded.arguments import Check, against, engine_values, unhonoured, value_checks, words_of
from vramwise.training.embedded.dataset_info import INFO, blocks_of, dataset_problems
from vramwise.types import RunSpec

_OWN = words_of(
    """
    model_name_or_path model_revision stage finetuning_type lora_rank lora_alpha lora_dropout lora_target
    additional_target use_rslora use_dora pure_bf16 quantization_bit quantization_method quantization_type
    double_quantization dataset eval_dataset dataset_dir template cutoff_len train_on_prompt mask_history max_samples
    val_size default_system flash_attn enable_liger_kernel disable_gradient_checkpointing use_reentrant_gc
    trust_remote_code disable_shuffling packing neat_packing do_eval enable_thinking
    plot_loss overwrite_cache preprocessing_num_workers preprocessing_batch_size low_cpu_mem_usage print_param_status
    cache_dir use_fast_tokenizer infer_backend infer_dtype data_shared_file_system include_effective_tokens_per_second
    """
)


def unsupported(run: RunSpec) -> Iterator[ConfigError]:
    """Yield what the engine cannot honour in one of LLaMA-Factory's files."""
    yield from unhonoured(run, vocabulary(run.target.stack), _OWN)
    yield from against(run, [*value_checks(run), *_checks(run), *dataset_problems(run)])


def _checks(run: RunSpec) -> list[Check]:
    get = run.config.get
    stage, tuned, template = get("stage", "sft"), get("finetuning_type", "lora"), get("template")
    method = get("quantization_method", "bnb")
    at_the_end = run.evaluation.evaluates and get("eval_strategy", "no") in ("no", False)
    several = run.evaluation.evaluates and len(names(get("eval_dataset"))) > 1
    return [
        ("stage", stage != "sft", f"stage {stage}: only sft is trained"),
        ("finetuning_type", tuned not in ("lora", "full"), f"finetuning_type {tuned} is neither lora nor full"),
        ("template", template is None, "no template: which one the tokenizer stands for is not guessed"),
        (
            "template",
            template is not None and template not in templates(),
            f"template {template} is not one of those made of texts alone ({', '.join(sorted(templates()))})",
        ),
        (
            "quantization_bit",
            run.loading.quantization == "gptq",
            "a checkpoint that is stored quantised is not honoured",
        ),
        (
            "quantization_method",
            run.loading.quantization is not None and method != "bnb",
            f"quantization_method {method} is not honoured: only bnb is",
        ),
        (
            "quantization_bit",
            run.loading.quantization is not None and run.adapter.kind is None,
            "a quantised base is trained with finetuning_type lora alone",
        ),
        ("do_eval", at_the_end, "an evaluation after training alone is not honoured: write eval_strategy"),
        ("eval_dataset", several, "several eval_datasets are not honoured: name one"),
    ]


def templates() -> Mapping[str, Any]:
    """Return the templates that the engine supports, by name."""
    found: Mapping[str, Any] = bundled_json("templates.json", __file__)["templates"]
    return found


def in_engine_words(run: RunSpec) -> dict[str, Any]:
    """Return the engine's settings for one of LLaMA-Factory's files."""
    config = run.config
    template = templates()[str(config.get("template"))]
    row = {
        "type": "llamafactory",
        "template": {**template, "default_system": config.get("default_system", template["default_system"])},
        "longest": run.shapes.sequence_len,
        "train_on_prompt": bool(config.get("train_on_prompt")),
        "last_turn_only": bool(config.get("mask_history")),
        "thinks": config.get("enable_thinking") if "enable_thinking" in config else True,
        "first": config.get("max_samples"),
    }
    stops = list(template["stop_words"])
    return {
        **engine_values(run, vocabulary(run.target.stack)),
        "datasets": _blocks(run, "dataset", row),
        "test_datasets": _blocks(run, "eval_dataset", row) if run.evaluation.evaluates else None,
        "val_set_size": config.get("val_size"),
        "order": "file" if config.get("disable_shuffling") else "torch",
        "weights": "auto",
        "end_token": stops.pop(0) if template["replace_eos"] else None,
        "stop_words": stops,
        "bnb_config_kwargs": _quantised(run) if run.loading.quantization == "4bit" else None,
    }


def _blocks(run: RunSpec, key: str, row: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        return [{**block, **row} for block in blocks_of(run, key)]
    except KeyError as error:
        raise VramwiseError(f"{key} {error} is not in {INFO} of {Path(run.config.document.path).parent}") from error


def _quantised(run: RunSpec) -> dict[str, Any]:
    return {
        "bnb_4bit_quant_type": run.config.get("quantization_type", "nf4"),
        "bnb_4bit_use_double_quant": run.config.get("double_quantization", True),
    }
