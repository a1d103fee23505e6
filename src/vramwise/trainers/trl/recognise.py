"""Recognises TRL's training configs by their keys.

`model_name_or_path` appears in files of many tools: LLaMA-Factory's, dataset filters, inference scripts. A training
file of TRL has training settings and no keys of other tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.trainers.releases import installs
from vramwise.trainers.signs import Identity, Sign, words
from vramwise.trainers.trl.keys import ALL_PROJECT_KEYS, COMMAND_KEYS, own_words

# Training settings: a file without one of them does not train.
TRAINING = words(
    """
    per_device_train_batch_size gradient_accumulation_steps learning_rate num_train_epochs max_steps
    gradient_checkpointing lr_scheduler_type optim packing use_peft output_dir
    """
)
# Keys of TRL's command and configs that are rare elsewhere.
OWN = words(
    """
    dataset_name dataset_train_split dataset_test_split dataset_mixture dataset_mixer use_peft lora_task_type
    use_bnb_nested_quant completion_only_loss assistant_only_loss packing_strategy reward_funcs model_init_kwargs
    accelerate_config dataset_text_field torch_dtype dtype max_seq_length test_split_size attn_implementation
    lora_target_modules load_in_4bit max_length beta
    """
)
# Keys of other tools: LLaMA-Factory, accelerate, DeepSpeed, ms-swift, dataset filters.
FOREIGN = words(
    """
    stage finetuning_type template cutoff_len dataset_dir neat_packing quantization_bit export_dir infer_backend
    vllm_enforce_eager api_host do_sample compute_environment distributed_type machine_rank zero_optimization
    pass_rate_min pass_rate_max base_model tuner_type torchtune tokenizer_path train_type
    """
)
_MODEL = "model_name_or_path"


def is_training_config(values: Mapping[Any, Any]) -> bool:
    """Return whether these are the values of a TRL config."""
    keys = {key for key in values if isinstance(key, str)}
    own = keys & (own_words() | ALL_PROJECT_KEYS | COMMAND_KEYS) & OWN
    # another tool's key among many of TRL's own is a mistake in the file
    if len(keys & FOREIGN) >= max(1, len(own)) or _nested(values):
        return False
    if values.get(_MODEL) is None and "dataset_name" not in keys:
        return False
    return bool(keys & TRAINING) and bool(own)


def _nested(values: Mapping[Any, Any]) -> bool:
    """Return whether values are nested: TRL's files are flat, other tools nest mappings under the same names."""
    named = (values.get(key) for key in (_MODEL, "dataset_name", "optim", "learning_rate"))
    return any(isinstance(value, dict) for value in named) or isinstance(values.get(_MODEL), list)


def might_be(keys: frozenset[str]) -> bool:
    """Return whether an unreadable text may be meant as a TRL config."""
    return _MODEL in keys and not keys & FOREIGN and bool(keys & TRAINING) and bool(keys & OWN)


# Too few keys to distinguish TRL's files from transformers'.
OTHER_FILES = (
    Sign(
        kind="trl",
        what="a file with too few TRL or transformers arguments to identify its trainer",
        any_of=words(
            "dataset_name dataset_mixer dataset_mixture dataset_config per_device_train_batch_size use_peft max_length "
            "num_train_epochs torch_dtype dtype"
        ),
        all_of=words(_MODEL),
    ),
    Sign(
        kind="trl",
        what="a file with too few TRL or transformers arguments to identify its trainer",
        any_of=words("per_device_train_batch_size per_device_eval_batch_size"),
    ),
)

IDENTITY = Identity(
    name="trl",
    title="TRL",
    package="trl",
    releases=lambda: installs(__file__),
    recognises=is_training_config,
    might_be=might_be,
    other_files=OTHER_FILES,
)
