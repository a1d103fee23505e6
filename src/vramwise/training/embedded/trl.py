"""TRL's files under the embedded engine: `trl sft`, unpacked. Follows scripts/sft.py and SFTTrainer of TRL 1.16."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.allocator.variables import VARIABLES
from vramwise.errors import ConfigError
from vramwise.trainers.trl.keys import vocabulary
from vramwise.trainers.trl.kind import kind_name
from vramwise.training.embedded.arguments import Check, against, engine_values, unhonoured, value_checks, words_of
from vramwise.types import RunSpec

_OWN = words_of(
    """
    model_name_or_path model_revision dtype attn_implementation use_peft lora_r lora_alpha lora_dropout
    lora_target_modules lora_modules_to_save lora_task_type use_rslora use_dora load_in_8bit load_in_4bit
    bnb_4bit_quant_type use_bnb_nested_quant bnb_4bit_quant_storage trust_remote_code
    dataset_name dataset_config dataset_train_split dataset_test_split datasets test_split_size dataset_text_field
    dataset_num_proc max_length truncation_mode completion_only_loss eos_token pad_token pad_to_multiple_of loss_type
    packing packing_strategy eval_packing env do_eval
    """
)
_BLOCK = ("path", "name", "data_files", "split", "columns")


def unsupported(run: RunSpec) -> Iterator[ConfigError]:
    """Yield what the engine cannot honour in one of TRL's files."""
    yield from unhonoured(run, vocabulary("sft", run.target.stack), _OWN)
    yield from against(run, [*value_checks(run), *_checks(run)])


def _checks(run: RunSpec) -> list[Check]:
    get = run.config.get
    kind, loss = kind_name(run), get("loss_type", "nll")
    written = get("datasets")
    blocks = written if isinstance(written, list) else []
    odd = sorted({str(key) for one in blocks if isinstance(one, dict) for key in one if key not in _BLOCK})
    block = get("env", {})
    others = sorted(str(name) for name in block if name not in VARIABLES) if isinstance(block, dict) else ["env"]
    named = get("dataset_name")
    return [
        ("model_name_or_path", kind != "sft", f"a file of `trl {kind}`: only `trl sft` is trained"),
        ("loss_type", loss not in ("nll", "chunked_nll"), f"loss_type {loss} is not honoured: only nll is"),
        ("datasets", not isinstance(written, list | None), "datasets takes a list of blocks, each with a path"),
        ("datasets", not blocks and not named, "neither dataset_name nor datasets: nothing to train on"),
        ("datasets", bool(odd), f"{', '.join(odd)} of a dataset is not honoured: only {', '.join(_BLOCK)} are"),
        ("env", bool(others), f"env: {', '.join(others)} is not set by the embedded engine: set it in the shell"),
        (
            "lora_task_type",
            get("lora_task_type", "CAUSAL_LM") != "CAUSAL_LM",
            f"lora_task_type {get('lora_task_type')} is not honoured: only CAUSAL_LM is",
        ),
        (
            "eval_strategy",
            run.evaluation.evaluates and bool(blocks) and not get("test_split_size"),
            "an evaluation of `datasets` needs test_split_size, which says how much is held out",
        ),
        (
            "quantization",
            run.loading.quantization is not None and run.adapter.kind is None,
            "a quantised base is trained with use_peft alone",
        ),
    ]


def in_engine_words(run: RunSpec) -> dict[str, Any]:
    """Return the engine's settings for one of TRL's files."""
    words = vocabulary("sft", run.target.stack)
    config = run.config

    def value(key: str) -> Any:
        return config.get(key) if key in config else words.default(key)

    row = {
        "type": "trl",
        "text_field": value("dataset_text_field"),
        "longest": value("max_length"),
        "keep_end": value("truncation_mode") == "keep_end",
        "completion_only": value("completion_only_loss"),
    }
    targets = config.get("lora_target_modules")
    return {
        **engine_values(run, words),
        **_datasets(run, row),
        "weights": "auto" if value("dtype") == "auto" else None,
        "special_tokens": {key: value(key) for key in ("eos_token", "pad_token") if value(key)},
        # TRL passes a list of one to PEFT as text
        "lora_target_modules": targets[0] if isinstance(targets, list) and len(targets) == 1 else targets,
        "bnb_config_kwargs": _quantised(value) if run.loading.quantization == "4bit" else None,
    }


def _datasets(run: RunSpec, row: dict[str, Any]) -> dict[str, Any]:
    config = run.config
    blocks = config.get("datasets")
    if blocks:
        listed = [{**{key: one.get(key) for key in _BLOCK}, **row, "by_split": True} for one in blocks]
        return {"datasets": listed, "val_set_size": config.get("test_split_size")}
    block = {"path": config.get("dataset_name"), "name": config.get("dataset_config"), **row, "by_split": True}
    train = {**block, "split": config.get("dataset_train_split", "train")}
    test = {**block, "split": config.get("dataset_test_split", "test")}
    return {"datasets": [train], "test_datasets": [test] if run.evaluation.evaluates else None}


def _quantised(value: Any) -> dict[str, Any]:
    compute = value("dtype")
    return {
        "bnb_4bit_compute_dtype": compute if compute != "auto" else "float32",
        "bnb_4bit_quant_type": value("bnb_4bit_quant_type"),
        "bnb_4bit_use_double_quant": bool(value("use_bnb_nested_quant")),
        "bnb_4bit_quant_storage": value("bnb_4bit_quant_storage") or "uint8",
    }
