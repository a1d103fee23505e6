"""The calls of transformers, TRL, PEFT, bitsandbytes and Unsloth that decide a run, and the keys they stand for."""

from __future__ import annotations

from collections.abc import Mapping

# A trainer's class → (the trainer's name here, the kind of training).
TRAINERS: Mapping[str, tuple[str, str]] = {
    "SFTTrainer": ("trl", "sft"),
    "DPOTrainer": ("trl", "dpo"),
    "KTOTrainer": ("trl", "kto"),
    "ORPOTrainer": ("trl", "orpo"),
    "CPOTrainer": ("trl", "cpo"),
    "RewardTrainer": ("trl", "reward"),
    "GRPOTrainer": ("trl", "grpo"),
    "RLOOTrainer": ("trl", "rloo"),
    "Trainer": ("hf-trainer", ""),
    "Seq2SeqTrainer": ("hf-trainer", ""),
    "UnslothTrainer": ("trl", "sft"),
}
# Positional parameters of trainers: model first, arguments second. DPOTrainer of old took the reference second.
MODEL, ARGS, PEFT = "model", "args", "peft_config"
REFERENCE_SECOND = frozenset({"DPOTrainer", "KTOTrainer"})
# What holds a training's arguments.
CONFIGS = frozenset(
    {
        *("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig", "KTOConfig", "ORPOConfig"),
        *("CPOConfig", "RewardConfig", "GRPOConfig", "RLOOConfig", "UnslothTrainingArguments"),
    }
)
# Arguments that trainers of old took themselves, and the key of the config that has them now.
OLD_TRAINER_ARGUMENTS: Mapping[str, str] = {
    "max_seq_length": "max_length",
    "max_length": "max_length",
    "max_prompt_length": "max_prompt_length",
    "packing": "packing",
    "dataset_text_field": "dataset_text_field",
    "dataset_num_proc": "dataset_num_proc",
    "neftune_noise_alpha": "neftune_noise_alpha",
    "beta": "beta",
    "loss_type": "loss_type",
    "precompute_ref_log_probs": "precompute_ref_log_probs",
}
# Arguments of a config that were renamed; the key that means the same today.
RENAMED_ARGUMENTS: Mapping[str, str] = {"max_seq_length": "max_length", "evaluation_strategy": "eval_strategy"}

_LORA: Mapping[str, str] = {
    "r": "lora_r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "target_modules": "lora_target_modules",
    "modules_to_save": "lora_modules_to_save",
    "use_rslora": "use_rslora",
    "use_dora": "use_dora",
}
_LOADING: Mapping[str, str] = {
    "dtype": "dtype",
    "torch_dtype": "dtype",
    "attn_implementation": "attn_implementation",
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "revision": "model_revision",
    "trust_remote_code": "trust_remote_code",
}
# Parameters of Unsloth's from_pretrained and get_peft_model beyond those.
_UNSLOTH_LOADING: Mapping[str, str] = {
    name: name
    for name in (
        *("max_seq_length", "load_in_16bit", "load_in_fp8", "full_finetuning", "offload_embedding", "offload_layers"),
        *("float32_mixed_precision", "fast_inference", "gpu_memory_utilization", "max_lora_rank", "qat_scheme"),
        *("unsloth_tiled_mlp", "use_gradient_checkpointing"),
    )
}
_UNSLOTH_LORA: Mapping[str, str] = {
    "use_gradient_checkpointing": "use_gradient_checkpointing",
    "offload_layers": "offload_layers",
    "checkpoint_skip_layers": "checkpoint_skip_layers",
}
_QUANTIZATION: Mapping[str, str] = {
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "bnb_4bit_use_double_quant": "use_bnb_nested_quant",
    "bnb_4bit_quant_type": "bnb_4bit_quant_type",
}
# Role of a call → its arguments → keys.
UNSLOTH_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "lora": {**_LORA, **_UNSLOTH_LORA},
    "model": {**_LOADING, **_UNSLOTH_LOADING, "model_name": "model_name_or_path"},
}
ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "lora": _LORA,
    "model": _LOADING,
    "quantization": _QUANTIZATION,
    "trainer": OLD_TRAINER_ARGUMENTS,
}
# What libraries take where a call leaves it out, and TRL's command would take something else.
LORA_DEFAULTS: Mapping[str, object] = {"lora_r": 8, "lora_alpha": 8, "lora_dropout": 0.0}
UNSLOTH_MODELS = frozenset({"FastLanguageModel", "FastModel", "FastVisionModel"})
# Those that compile transformers' own modules.
UNSLOTH_COMPILED = frozenset({"FastModel", "FastVisionModel"})
UNSLOTH = "unsloth"
PREPARES = frozenset({"prepare_model_for_kbit_training", "prepare_model_for_int8_training"})
# Calls that give back the model they are given, or that are methods of it.
PASSES_ON = frozenset(
    {
        *("to", "cuda", "half", "bfloat16", "float", "train", "prepare", "setup_chat_format", "prepare_model"),
        *("DataParallel", "DistributedDataParallel", "compile", "deepcopy", "merge_and_unload", "requires_grad_"),
        *("for_training", "eval", "get_base_model"),
    }
)
