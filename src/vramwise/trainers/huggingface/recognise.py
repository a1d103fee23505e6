"""Recognises a file of TrainingArguments: several of its keys, and none of another trainer's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.trainers.releases import TRANSFORMERS, installs
from vramwise.trainers.signs import Identity, words

# Keys that every dump of TrainingArguments has and that are rarely used elsewhere.
TELLING = words(
    """
    per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps num_train_epochs
    lr_scheduler_type max_grad_norm adam_beta1 adam_beta2 dataloader_num_workers save_total_limit logging_steps optim
    ddp_find_unused_parameters output_dir overwrite_output_dir warmup_ratio eval_strategy save_strategy
    """
)
_BATCH = "per_device_train_batch_size"
_SEVERAL = 4
# If the model is named too, as scripts that read such a file do, fewer keys are enough.
_MODEL = "model_name_or_path"
_SOME = 2
# Keys of other tools; TRL's files are recognised before.
FOREIGN = words(
    """
    stage finetuning_type template cutoff_len dataset_dir neat_packing quantization_bit export_dir infer_backend
    compute_environment distributed_type zero_optimization base_model micro_batch_size tuner_type train_type
    """
)


def is_arguments(values: Mapping[Any, Any]) -> bool:
    """Return whether these are the values of TrainingArguments, with or without a script's own."""
    keys = {key for key in values if isinstance(key, str)}
    if keys & FOREIGN or isinstance(values.get(_BATCH), dict | list):
        return False
    return _BATCH in keys and len(keys & TELLING) >= (_SOME if _MODEL in keys else _SEVERAL)


IDENTITY = Identity(
    name="hf-trainer",
    title="transformers' Trainer",
    package="transformers",
    releases=lambda: installs(TRANSFORMERS),
    recognises=is_arguments,
    might_be=lambda keys: False,  # dumps are written by programs, so an unreadable text is not one
)
