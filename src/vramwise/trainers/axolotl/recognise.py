"""Recognises Axolotl's training configs by their keys.

One shared key proves nothing: mkdocs has `plugins`, accelerate `fsdp_config`, mergekit and model cards `base_model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.trainers.axolotl.schema import known_releases, releases, schema_of_version
from vramwise.trainers.signs import Identity, words

# Keys that are rare outside Axolotl's configs: several of them are enough.
OWN = words(
    """
    micro_batch_size sequence_len sample_packing eval_sample_packing pad_to_sequence_len val_set_size
    dataset_prepared_path lora_target_linear base_model_config is_llama_derived_model is_mistral_derived_model
    is_falcon_derived_model type_of_model pretraining_dataset flash_attention sdp_attention xformers_attention
    lora_mlp_kernel lora_qkv_kernel lora_o_kernel peft_use_dora unfrozen_parameters evals_per_epoch saves_per_epoch
    chat_template_jinja excess_length_strategy quantize_moe_experts shuffle_merged_datasets train_on_inputs
    """
)
_SEVERAL = 3
# Training settings that are enough together with a base model. Not included, because other tools use them with a base
# model: datasets, tags, plugins (model cards), merge_method, dtype, models (mergekit).
TRAINING = OWN | words(
    """
    adapter auto_resume_from_checkpoints batch_size bf16 bfloat16 eval_batch_size float16 fp16 rl optimizer
    gradient_accumulation_steps gradient_checkpointing learning_rate load_in_4bit load_in_8bit lora_alpha lora_dropout
    lora_model_dir lora_r lora_target_modules lr_scheduler max_steps num_epochs save_steps warmup_ratio warmup_steps
    weight_decay attn_implementation deepspeed fsdp
    """
)
# Keys that show that a base model belongs to another tool: mergekit, model cards, other trainers.
NOT_TRAINING = words("merge_method slices model_name_or_path library_name pipeline_tag")


def is_training_config(values: Mapping[Any, Any]) -> bool:
    """Return whether these are values of an Axolotl config: a base model and a setting, or several own keys.

    Both must be single values (a list is fine for a setting): other tools nest mappings under the same names.
    """
    keys = {key for key in values if isinstance(key, str)}
    if keys & NOT_TRAINING:
        return False
    settings = {key for key in keys & TRAINING if not isinstance(values[key], dict)}
    model = values.get("base_model")
    if model is not None and not isinstance(model, dict | list):
        return bool(settings) and not _is_anothers(values, keys)
    return len(settings & OWN) >= _SEVERAL


def _is_anothers(values: Mapping[Any, Any], keys: set[str]) -> bool:
    """Return whether values that name a base model belong to somebody's own script.

    They have no data sets and none of the keys that are rare elsewhere, and their adapter is a folder, or most of their
    keys are unknown.
    """
    if keys & OWN or "datasets" in keys:
        return False
    adapter = values.get("adapter")
    if isinstance(adapter, str) and "/" in adapter:
        return True
    schema = schema_of_version(known_releases()[-1])
    return len(keys - schema.keys() - schema.deprecations().keys()) * 2 > len(keys)


IDENTITY = Identity(
    name="axolotl",
    title="Axolotl",
    package="axolotl",
    releases=releases,
    recognises=is_training_config,
    might_be=lambda keys: "base_model" in keys or bool(keys & OWN),
    own_setting="micro_batch_size",
)
