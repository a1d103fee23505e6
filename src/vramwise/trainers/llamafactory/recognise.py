"""Recognises training files of LLaMA-Factory by their keys.

Not its files for chat, export and evaluation; not those of its new core (`USE_V1=1`), whose keys the normal command
refuses; and not those for Megatron (`USE_MCA=1`), whose arguments belong to another package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.trainers.releases import installs
from vramwise.trainers.signs import Identity, Sign, words

# Keys of LLaMA-Factory's training files that TRL's and transformers' files do not have.
OWN = words(
    """
    stage finetuning_type template cutoff_len dataset_dir neat_packing quantization_bit lora_target lora_rank
    pure_bf16 additional_target freeze_trainable_layers pref_loss pref_beta overwrite_cache
    preprocessing_num_workers disable_gradient_checkpointing flash_attn enable_liger_kernel val_size plot_loss
    """
)
# Keys that show that a file trains.
_TRAINS = words(
    """
    stage do_train finetuning_type per_device_train_batch_size gradient_accumulation_steps learning_rate
    num_train_epochs max_steps output_dir
    """
)
_OTHER_COMMANDS = words("export_dir infer_backend api_host vllm_enforce_eager")
# Arguments of Megatron's adapter, which only USE_MCA=1 accepts.
_MEGATRON = words(
    """
    tensor_model_parallel_size pipeline_model_parallel_size expert_model_parallel_size use_distributed_optimizer
    virtual_pipeline_model_parallel_size
    """
)
# TRL's keys for the same settings: a file with more of these has LLaMA-Factory's keys by mistake.
_TRLS = words(
    """
    dataset_name dataset_train_split dataset_test_split dataset_mixer dataset_mixture use_peft lora_r
    lora_target_modules torch_dtype dtype attn_implementation load_in_4bit load_in_8bit max_length max_seq_length
    max_prompt_length max_completion_length reward_funcs num_generations model_init_kwargs completion_only_loss beta
    """
)
_SEVERAL = 2
# Keys that no other tool has: one is enough.
_ALONE = words("finetuning_type cutoff_len neat_packing quantization_bit pure_bf16")


def is_training_config(values: Mapping[Any, Any]) -> bool:
    """Return whether these are the values of a LLaMA-Factory training file."""
    keys = {key for key in values if isinstance(key, str)}
    if not isinstance(values.get("model_name_or_path"), str) and "model_name_or_path" not in keys:
        return False
    if keys & _MEGATRON or (keys & _OTHER_COMMANDS and "do_train" not in keys):
        return False
    own = {key for key in keys & OWN if not isinstance(values[key], dict)}
    if len(keys & _TRLS) > len(own) + len(own & _ALONE):
        return False
    return bool(own) and bool(keys & _TRAINS) and (len(own) >= _SEVERAL or _certain(own))


def _certain(own: set[str]) -> bool:
    """Return whether there is a key that no other tool has."""
    return bool(own & _ALONE)


_MODEL = words("model_name_or_path")
# Its files that do not train, or belong to other commands.
OTHER_FILES = (
    Sign(
        kind="llamafactory-other",
        what="a LLaMA-Factory file for export or inference",
        any_of=words("export_dir infer_backend vllm_enforce_eager api_host"),
        all_of=_MODEL,
    ),
    Sign(
        kind="llamafactory-megatron",
        what="a LLaMA-Factory file for Megatron",
        any_of=words("tensor_model_parallel_size pipeline_model_parallel_size expert_model_parallel_size"),
        all_of=_MODEL,
    ),
    Sign(
        kind="llamafactory-other",
        what="a LLaMA-Factory file without training",
        any_of=words("stage finetuning_type template cutoff_len dataset_dir neat_packing quantization_bit"),
        all_of=_MODEL,
    ),
    Sign(
        kind="llamafactory-v1",
        what="a file of LLaMA-Factory's new core (USE_V1=1)",
        any_of=words("model_class kernel_config dist_config peft_config"),
        all_of=words("model"),
    ),
)

IDENTITY = Identity(
    name="llamafactory",
    title="LLaMA-Factory",
    package="llamafactory",
    releases=lambda: installs(__file__),
    recognises=is_training_config,
    might_be=lambda keys: "model_name_or_path" in keys and bool(keys & OWN),
    other_files=OTHER_FILES,
    other_names=("llama-factory", "llama_factory", "llmtuner", "LLaMA-Factory"),
    own_setting="cutoff_len",
)
