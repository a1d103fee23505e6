"""Converts RunSpec and plan to transformers' TrainingArguments: schedules, optimizer, dtypes, sharding, logging."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from vramwise.errors import VramwiseError
from vramwise.training.embedded.axolotl import wants_wandb
from vramwise.training.plan import TrainPlan
from vramwise.types import Config, RunSpec

_WANDB = {
    "wandb_project": "WANDB_PROJECT",
    "wandb_entity": "WANDB_ENTITY",
    "wandb_name": "WANDB_NAME",
    "wandb_run_id": "WANDB_RUN_ID",
    "wandb_mode": "WANDB_MODE",
    "wandb_watch": "WANDB_WATCH",
    "wandb_log_model": "WANDB_LOG_MODEL",
}
_FSDP_KEYS = (
    *("auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params"),
    *("cpu_ram_efficient_loading", "state_dict_type", "reshard_after_forward"),
)
_SAME_NAME = (
    *("adam_beta1", "adam_beta2", "adam_epsilon", "neftune_noise_alpha", "torch_compile_backend", "torch_compile_mode"),
    *("save_only_model", "load_best_model_at_end", "metric_for_best_model", "greater_is_better"),
)


def training_arguments(run: RunSpec, plan: TrainPlan) -> TrainingArguments:
    """Return the arguments of one attempt; raises VramwiseError if transformers refuses them."""
    try:
        arguments = _arguments(run, plan)
    except ValueError as error:
        raise VramwiseError(f"transformers refuses these settings: {error}") from error
    arguments._n_gpu = min(arguments.n_gpu, 1)  # several cards mean several processes, never DataParallel
    return arguments


def _arguments(run: RunSpec, plan: TrainPlan) -> TrainingArguments:
    config = run.config
    return TrainingArguments(
        output_dir=plan.output_dir,
        per_device_train_batch_size=plan.micro_batch_size,
        per_device_eval_batch_size=plan.eval_batch_size or plan.micro_batch_size,
        gradient_accumulation_steps=plan.gradient_accumulation_steps,
        bf16=plan.precision == "bf16" and run.precision.autocast,
        fp16=plan.precision == "fp16" and run.precision.autocast,
        use_cpu=not torch.cuda.is_available(),
        seed=plan.seed,
        disable_tqdm=True,  # progress.py prints progress
        prediction_loss_only=True,
        remove_unused_columns=False,  # rows are made by our own collator
        torch_compile=run.kernels.torch_compile,
        optim=run.optimizer.name,
        max_grad_norm=run.optimizer.max_grad_norm,
        **_checkpointing(run),
        **_liger(run),
        **(_sharding(run) | _as_written(config) if config.get("arguments") else _sharding(run) | _from_keys(run)),
    )


def _as_written(config: Config) -> dict[str, Any]:
    """Return the arguments of a file that has them; defaults unknown to this transformers are left out."""
    given = dict(config.get("arguments"))
    known = {one.name for one in fields(TrainingArguments)}
    odd = [name for name in given if name not in known and name in config]
    if odd:
        raise VramwiseError(f"this transformers has no argument {', '.join(odd)}")
    if not torch.cuda.is_available():
        given |= {"dataloader_pin_memory": False}
        given.pop("tf32", None)
    return {name: value for name, value in given.items() if name in known}


def _from_keys(run: RunSpec) -> dict[str, Any]:
    config = run.config
    return {
        "num_train_epochs": float(config.get("num_epochs", 1.0)),
        "max_steps": int(config.get("max_steps") or -1),
        "report_to": _report_to(config),
        "run_name": config.get("wandb_name"),
        "logging_steps": config.get("logging_steps", 10),
        "logging_first_step": True,
        **_optimizer(run),
        **_schedules(config, evaluates=run.evaluation.evaluates),
        **_loader(config),
        **_optional(config),
    }


def _optimizer(run: RunSpec) -> dict[str, Any]:
    config = run.config
    ratio, steps = config.get("warmup_ratio"), config.get("warmup_steps")
    kwargs = dict(config.get("lr_scheduler_kwargs", {}))
    schedule = config.get("lr_scheduler", "cosine")
    if config.get("cosine_min_lr_ratio") is not None and schedule == "cosine":
        schedule = "cosine_with_min_lr"
        kwargs["min_lr_rate"] = config.get("cosine_min_lr_ratio")
    return {
        "optim_args": _optimizer_arguments(config.get("optim_args")),
        "learning_rate": float(config.get("learning_rate", 5e-5)),
        "lr_scheduler_type": schedule,
        "lr_scheduler_kwargs": kwargs or None,
        "warmup_steps": ratio if ratio is not None else steps or 0,  # below 1: a share of all steps
        "weight_decay": float(config.get("weight_decay", 0.0)),
    }


def _optimizer_arguments(written: Any) -> str | None:
    if isinstance(written, Mapping):
        return ",".join(f"{name}={value}" for name, value in written.items())
    return None if written is None else str(written)


def _schedules(config: Config, *, evaluates: bool) -> dict[str, Any]:
    """Return when to evaluate and when to save. `*_per_epoch` becomes a share of all steps, as in Axolotl."""
    evaluate = _schedule(config, "eval_steps", "evals_per_epoch", ("eval_strategy", "evaluation_strategy"), "no")
    save = _schedule(config, "save_steps", "saves_per_epoch", ("save_strategy",), "epoch")
    return {
        "eval_strategy": evaluate[0] if evaluates else "no",
        "eval_steps": evaluate[1] if evaluates else None,
        "save_strategy": save[0],
        "save_steps": save[1] or 500,
    }


def _schedule(
    config: Config, steps_key: str, per_epoch_key: str, strategy_keys: tuple[str, ...], default: str
) -> tuple[str, float | None]:
    steps, per_epoch = config.get(steps_key), config.get(per_epoch_key)
    strategies = [str(config.get(key)) for key in strategy_keys if config.get(key) is not None]
    if strategies and strategies[0] not in ("steps",):
        return ("no" if strategies[0] == "False" else strategies[0]), None
    if steps:
        return "steps", steps
    if per_epoch:
        return "steps", 1.0 / (per_epoch * float(config.get("num_epochs", 1.0)))
    return (strategies[0] if strategies else default), None


def _checkpointing(run: RunSpec) -> dict[str, Any]:
    # transformers 5.23 renamed it, and warns about the old name.
    renamed = "activation_checkpointing" in {field.name for field in fields(TrainingArguments)}
    name = "activation_checkpointing" if renamed else "gradient_checkpointing"
    if not run.savings.recompute or run.sharding.is_fsdp:  # FSDP has its own setting for recomputing
        return {name: False}
    kwargs = {"use_reentrant": run.savings.checkpointing_reentrant}
    written = run.config.get("gradient_checkpointing_kwargs", {})
    return {name: True, f"{name}_kwargs": {**kwargs, **written}}


def _liger(run: RunSpec) -> dict[str, Any]:
    if not run.kernels.liger and not run.kernels.loss_kernel.startswith("liger"):
        return {}
    kernels = {
        "rope": "rope" in run.kernels.liger,
        "rms_norm": "rms_norm" in run.kernels.liger,
        "swiglu": bool({"glu_activation", "swiglu"} & set(run.kernels.liger)),
        "cross_entropy": run.kernels.loss_kernel == "liger",
        "fused_linear_cross_entropy": run.kernels.loss_kernel == "liger_fused_linear",
    }
    if "layer_norm" in run.kernels.liger:
        kernels["layer_norm"] = True
    return {"use_liger_kernel": True, "liger_kernel_config": kernels}


def _sharding(run: RunSpec) -> dict[str, Any]:
    config = run.config
    chosen: dict[str, Any] = {}
    for key in ("ddp_timeout", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_find_unused_parameters"):
        if config.get(key) is not None:
            chosen[key] = config.get(key)
    if run.sharding.is_zero:
        chosen["deepspeed"] = _deepspeed_file(config)
    elif run.sharding.kind == "fsdp2" and run.batch.gpus > 1:
        if not torch.cuda.is_available():  # accelerate would replicate instead without warning
            raise VramwiseError("FSDP needs GPUs, and there is none here: remove fsdp_config to train on the CPU")
        chosen["fsdp"] = True
        chosen["fsdp_config"] = _fsdp_config(run)
    elif run.sharding.kind == "ddp" and "ddp_find_unused_parameters" not in chosen:
        chosen["ddp_find_unused_parameters"] = False
    return chosen


def _deepspeed_file(config: Config) -> Any:
    """Return an existing path, or the settings themselves if the config contains them."""
    written = config.get("deepspeed")
    if not isinstance(written, str):
        return written
    for folder in (Path(), Path(config.document.path).parent):
        if (folder / written).is_file():
            return str(folder / written)
    raise VramwiseError(f"deepspeed: {written} does not exist")


def _fsdp_config(run: RunSpec) -> dict[str, Any]:
    written = dict(run.config.get("fsdp_config", {}))
    chosen: dict[str, Any] = {name: written[name] for name in _FSDP_KEYS if written.get(name) is not None}
    return {
        **chosen,
        "version": 2,
        "cpu_offload": run.sharding.offload_params,
        "activation_checkpointing": bool(written.get("activation_checkpointing")) or run.savings.recompute,
    }


def _loader(config: Config) -> dict[str, Any]:
    workers = int(config.get("dataloader_num_workers") or 0)
    pin = bool(config.get("dataloader_pin_memory", torch.cuda.is_available()))
    chosen = {"dataloader_num_workers": workers, "dataloader_pin_memory": pin and torch.cuda.is_available()}
    if workers and config.get("dataloader_prefetch_factor"):
        chosen["dataloader_prefetch_factor"] = config.get("dataloader_prefetch_factor")
    return chosen


def _optional(config: Config) -> dict[str, Any]:
    """Return written keys that both sides know by the same name."""
    chosen = {name: config.get(name) for name in _SAME_NAME if config.get(name) is not None}
    if config.get("tf32") in (True, False) and torch.cuda.is_available():
        chosen["tf32"] = config.get("tf32")
    return chosen


def _report_to(config: Config) -> list[str]:
    """Return where to log: nowhere unless requested."""
    services = []
    if wants_wandb(config):
        services.append("wandb")
        for key, variable in _WANDB.items():
            if config.get(key):
                os.environ.setdefault(variable, str(config.get(key)))
    if config.get("use_tensorboard"):
        services.append("tensorboard")
    return services or ["none"]
