"""Is this a file of TrainingArguments? By several of its keys, and none of another trainer's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.trainers.signs import words

# Keys of TrainingArguments that every dump of them has and hardly anybody writes elsewhere.
TELLING = words(
    """
    per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps num_train_epochs
    lr_scheduler_type max_grad_norm adam_beta1 adam_beta2 dataloader_num_workers save_total_limit logging_steps optim
    ddp_find_unused_parameters output_dir overwrite_output_dir warmup_ratio eval_strategy save_strategy
    """
)
_BATCH = "per_device_train_batch_size"
_SEVERAL = 4
# Beside the model, as the scripts that read such a file call it, fewer are enough.
_MODEL = "model_name_or_path"
_SOME = 2
# Another tool's; what belongs to TRL is asked for before.
FOREIGN = words(
    """
    stage finetuning_type template cutoff_len dataset_dir neat_packing quantization_bit export_dir infer_backend
    compute_environment distributed_type zero_optimization base_model micro_batch_size tuner_type train_type
    """
)


def is_arguments(values: Mapping[Any, Any]) -> bool:
    """Whether these are the values of TrainingArguments, with or without a script's own."""
    keys = {key for key in values if isinstance(key, str)}
    if keys & FOREIGN or isinstance(values.get(_BATCH), dict | list):
        return False
    return _BATCH in keys and len(keys & TELLING) >= (_SOME if _MODEL in keys else _SEVERAL)
