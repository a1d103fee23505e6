"""Keys of TrainingArguments under the embedded engine, for all trainers built on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.errors import ConfigError
from vramwise.trainers.arguments import Vocabulary
from vramwise.trainers.arguments.vocabulary import kinds_of
from vramwise.types import Config, RunSpec


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
# A check of a value: the key, whether the engine cannot honour it, and why.
Check = tuple[str, bool, str]


def refusal(config: Config, key: str, message: str) -> ConfigError:
    """Return the error for a setting that cannot be honoured, with its place."""
    place = config.place(key)
    return ConfigError(message, line=place.line if place else None, column=place.column if place else None)


def unhonoured(run: RunSpec, words: Vocabulary, own: frozenset[str]) -> Iterator[ConfigError]:
    """Yield errors for keys that are neither honoured nor off. `own`: the trainer's own honoured keys."""
    known = PASSED_ON | DECIDED | WITHOUT_EFFECT | own
    for key, value in run.config.document.values.items():
        if key in known or is_off(value, words.default(str(key))):
            continue
        yield refusal(run.config, str(key), f"{key} is not honoured by the embedded engine")


def is_off(value: Any, default: Any) -> bool:
    """Return whether a written value has no effect: null, empty, or the trainer's default."""
    if value is None or value in ("", [], {}) or (default is not None and value == default):
        return True
    return value is False and default is not True


def against(run: RunSpec, checks: list[Check]) -> Iterator[ConfigError]:
    """Yield an error for each check that applies."""
    for key, applies, message in checks:
        if applies:
            yield refusal(run.config, key, message)


def value_checks(run: RunSpec) -> list[Check]:
    """Return checks of the run's fields, under the trainer's own keys."""
    schedule = run.config.get("lr_scheduler_type", "linear")
    return [
        (
            _key(run, "optimizer"),
            run.optimizer.name not in OPTIMIZERS,
            f"optimizer {run.optimizer.name} is not honoured",
        ),
        ("lr_scheduler_type", schedule == "greedy", f"lr_scheduler_type {schedule} is not honoured"),
        (
            _key(run, "attn_implementation"),
            run.kernels.attn_implementation not in ATTENTION,
            f"attention {run.kernels.attn_implementation} is not one of {', '.join(ATTENTION)}",
        ),
        ("fp8", run.precision.compute == "fp8", "fp8 is not honoured"),
        (
            _key(run, "sample_packing"),
            run.shapes.sample_packing,
            "packing is not honoured: rows would be packed otherwise than the trainer packs them",
        ),
        (
            _key(run, "sharding"),
            run.sharding.kind not in ("none", "ddp"),
            f"sharding ({run.sharding.kind}) is not honoured for these files",
        ),
    ]


def _key(run: RunSpec, field: str) -> str:
    return run.keys.get(field, field)


def passed_on(run: RunSpec, words: Vocabulary) -> dict[str, Any]:
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


def engine_values(run: RunSpec, words: Vocabulary) -> dict[str, Any]:
    """Return the engine's settings that all such trainers share."""
    get = run.config.get
    return {
        "arguments": passed_on(run, words),
        "order": "torch",
        "order_seed": get("data_seed", get("seed", 42)),
        "rows_apart": True,
        "revision_of_model": get("model_revision"),
        "gradient_checkpointing_kwargs": get("gradient_checkpointing_kwargs"),
        "save_total_limit": get("save_total_limit"),
        "trust_remote_code": get("trust_remote_code"),
        "seed": get("seed"),
        "output_dir": get("output_dir"),
    }
