"""Is this one of Axolotl's training configs? By its keys alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that Axolotl's configs have and no other tool's: one of them is enough.
OWN = _words(
    """
    micro_batch_size sequence_len sample_packing eval_sample_packing pad_to_sequence_len val_set_size
    dataset_prepared_path lora_target_linear base_model_config is_llama_derived_model is_mistral_derived_model
    is_falcon_derived_model type_of_model pretraining_dataset flash_attention sdp_attention xformers_attention
    lora_mlp_kernel lora_qkv_kernel lora_o_kernel peft_use_dora unfrozen_parameters evals_per_epoch saves_per_epoch
    chat_template_jinja excess_length_strategy quantize_moe_experts shuffle_merged_datasets train_on_inputs
    """
)
# Beside a base model: something to train it on or by.
TRAINING = _words(
    """
    datasets test_datasets adapter lora_r rl optimizer learning_rate num_epochs max_steps gradient_accumulation_steps
    load_in_4bit load_in_8bit bf16 fp16 gradient_checkpointing fsdp fsdp_config deepspeed plugins output_dir
    attn_implementation eval_batch_size batch_size
    """
)
# A base model beside these is another tool's: mergekit, model cards, other trainers.
NOT_TRAINING = _words("merge_method slices model_name_or_path library_name pipeline_tag")


def is_training_config(values: Mapping[Any, Any]) -> bool:
    """Whether these are the values of one of Axolotl's configs."""
    keys = {key for key in values if isinstance(key, str)}
    if keys & NOT_TRAINING:
        return False
    return bool(keys & OWN) or ("base_model" in keys and bool(keys & TRAINING))
