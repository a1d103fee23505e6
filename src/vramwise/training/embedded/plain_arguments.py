"""Files of TrainingArguments under the embedded engine, trained like transformers' run_clm.py.

Its texts are joined and cut into blocks. What other scripts do with their own keys cannot be known from the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.rules.base import Hit
from vramwise.trainers.arguments import Vocabulary, training_arguments
from vramwise.trainers.arguments.vocabulary import kinds_of
from vramwise.types import RunSpec


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


# Passed on unchanged.
PASSED_ON = words_of(
    """
    num_train_epochs max_steps learning_rate lr_scheduler_type lr_scheduler_kwargs warmup_steps weight_decay adam_beta1
    adam_beta2 adam_epsilon optim_args neftune_noise_alpha eval_strategy eval_steps eval_delay save_strategy save_steps
    save_only_model load_best_model_at_end metric_for_best_model greater_is_better logging_strategy logging_steps
    logging_first_step logging_nan_inf_filter report_to run_name dataloader_num_workers dataloader_pin_memory
    dataloader_prefetch_factor dataloader_persistent_workers ddp_timeout ddp_bucket_cap_mb ddp_broadcast_buffers
    ddp_find_unused_parameters tf32 torch_compile_backend torch_compile_mode
    """
)
# Also honoured, through a field of the run or by the engine itself.
DECIDED = words_of(
    """
    per_device_train_batch_size gradient_accumulation_steps per_device_eval_batch_size bf16 fp16 optim max_grad_norm
    gradient_checkpointing gradient_checkpointing_kwargs torch_compile use_liger_kernel liger_kernel_config seed
    data_seed output_dir resume_from_checkpoint save_total_limit warmup_ratio
    """
)
# These do not affect the result: output, counters, visibility, and services started alongside.
WITHOUT_EFFECT = words_of(
    """
    do_train do_predict overwrite_output_dir disable_tqdm log_level log_level_replica log_on_each_node logging_dir
    include_num_input_tokens_seen include_tokens_per_second prediction_loss_only skip_memory_metrics
    save_on_each_node local_rank use_cpu no_cuda average_tokens_across_devices hub_strategy hub_private_repo
    hub_model_id hub_token eval_accumulation_steps eval_do_concat_batches remove_unused_columns project
    save_safetensors length_column_name ddp_backend
    """
)
OPTIMIZERS = words_of(
    """
    adamw_torch adamw_torch_fused adafactor sgd adagrad rmsprop adamw_bnb_8bit adamw_8bit paged_adamw_32bit
    paged_adamw_8bit lion_8bit lion_32bit paged_lion_8bit paged_lion_32bit ademamix ademamix_8bit paged_ademamix_32bit
    paged_ademamix_8bit rmsprop_bnb rmsprop_bnb_8bit rmsprop_bnb_32bit
    """
)
ATTENTION = ("sdpa", "eager", "flash_attention_2", "flash_attention_3", "flex_attention")
_OWN = words_of(
    """
    model_name_or_path model_revision dtype torch_dtype attn_implementation train_file validation_file block_size
    validation_split_percentage preprocessing_num_workers overwrite_cache trust_remote_code do_eval cache_dir
    """
)
_HELD_OUT_PERCENT = 5


def unsupported(run: RunSpec) -> Iterator[Hit]:
    """Yield what the engine cannot honour in a file of TrainingArguments."""
    words = training_arguments(run.target.stack)
    known = PASSED_ON | DECIDED | WITHOUT_EFFECT | _OWN
    for key, value in run.config.document.values.items():
        if key not in known and not is_off(value, words.default(str(key))):
            yield Hit(f"{key} is not honoured by the embedded engine", str(key))
    yield from _values(run)


def refused_where(*cases: tuple[object, str, str]) -> Iterator[Hit]:
    """Yield the sentence and the key of every case whose condition holds."""
    return (Hit(sentence, key) for applies, key, sentence in cases if applies)


def is_off(value: Any, default: Any) -> bool:
    """Return whether a written value has no effect: null, empty, or the trainer's default."""
    if value is None or value in ("", [], {}) or (default is not None and value == default):
        return True
    return value is False and default is not True


def _values(run: RunSpec) -> Iterator[Hit]:
    get, keys = run.config.get, run.keys.get
    schedule, file, size = get("lr_scheduler_type", "linear"), get("train_file"), get("block_size")
    optimizer, attention = run.optimizer.name, run.kernels.attn_implementation
    yield from refused_where(
        (optimizer not in OPTIMIZERS, keys("optimizer", "optimizer"), f"optimizer {optimizer} is not honoured"),
        (schedule == "greedy", "lr_scheduler_type", f"lr_scheduler_type {schedule} is not honoured"),
        (
            attention not in ATTENTION,
            keys("attn_implementation", "attn_implementation"),
            f"attention {attention} is not one of {', '.join(ATTENTION)}",
        ),
        (run.precision.compute == "fp8", "fp8", "fp8 is not honoured"),
        (
            run.sharding.kind not in ("none", "ddp"),
            keys("sharding", "sharding"),
            f"sharding ({run.sharding.kind}) is not honoured for these files",
        ),
        (
            not isinstance(file, str),
            "train_file",
            "no train_file: which data these arguments are for, only the script that reads them knows",
        ),
        (
            not isinstance(size, int) or size < 1,
            "block_size",
            "no block_size: how long its rows are, only the script that reads them knows",
        ),
    )


def _passed_on(run: RunSpec, words: Vocabulary) -> dict[str, Any]:
    """Return what TrainingArguments get: written values, else the trainer's own defaults."""
    config = run.config
    found = {key: _read(words, key, config.get(key, words.default(key))) for key in sorted(PASSED_ON)}
    ratio = config.get("warmup_ratio")
    # newer versions have no key for it: a number of steps below 1 is a share
    if ratio and not config.get("warmup_steps"):
        found["warmup_steps"] = ratio
    if "report_to" not in config:  # nowhere unless requested
        found["report_to"] = "none"
    if not run.evaluation.evaluates:
        found |= {"eval_strategy": "no", "eval_steps": None}
    return {key: value for key, value in found.items() if value is not None}


def _read(words: Vocabulary, key: str, value: Any) -> Any:
    """Return a number that YAML 1.1 reads as text (1e-05) as a number, as every trainer does."""
    if not isinstance(value, str) or "float" not in kinds_of(words.type_of(key) or ""):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def in_engine_words(run: RunSpec) -> dict[str, Any]:
    """Return the engine's settings for a file of TrainingArguments."""
    get = run.config.get
    held, size = get("validation_file"), get("block_size")
    return {
        "arguments": _passed_on(run, training_arguments(run.target.stack)),
        "order_seed": get("data_seed", get("seed", 42)),
        "revision_of_model": get("model_revision"),
        "gradient_checkpointing_kwargs": get("gradient_checkpointing_kwargs"),
        "save_total_limit": get("save_total_limit"),
        "trust_remote_code": get("trust_remote_code"),
        "seed": get("seed"),
        "output_dir": get("output_dir"),
        "datasets": [{"path": get("train_file"), "size": size}],
        "test_datasets": [{"path": held, "size": size}] if held and run.evaluation.evaluates else None,
        "val_set_size": 0.0 if held else get("validation_split_percentage", _HELD_OUT_PERCENT) / 100,
        "weights": None if get("dtype") or get("torch_dtype") else "auto",
    }
