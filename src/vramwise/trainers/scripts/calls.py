"""The calls of transformers, TRL, PEFT, bitsandbytes and Unsloth that affect a run, and the keys they represent."""

from __future__ import annotations

from collections.abc import Mapping

# A trainer's class → (the name of our trainer, the kind of training).
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
# Positional parameters of trainers: model first, arguments second. The old DPOTrainer took the reference second.
UNKNOWN_FLAG = "unknown flag "
MODEL, ARGS, PEFT, INIT = "model", "args", "peft_config", "model_init_kwargs"
# An argument of trainers that load the model by name, and of `from_pretrained`.
QUANTIZATION = "quantization_config"
REFERENCE_SECOND = frozenset({"DPOTrainer", "KTOTrainer"})
# The classes of a training's arguments.
CONFIGS = frozenset(
    {
        *("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig", "KTOConfig", "ORPOConfig"),
        *("CPOConfig", "RewardConfig", "GRPOConfig", "RLOOConfig", "UnslothTrainingArguments"),
    }
)
PLAIN_ARGUMENTS = frozenset({"TrainingArguments", "Seq2SeqTrainingArguments"})
# Attributes of arguments that a script reads without setting them. TRL's own defaults differ by release.
_ARGUMENTS_DEFAULTS: Mapping[str, object] = {
    "bf16": False,
    "fp16": False,
    "gradient_checkpointing": False,
    "gradient_accumulation_steps": 1,
    "per_device_train_batch_size": 8,
    "per_device_eval_batch_size": 8,
    "do_eval": False,
    "deepspeed": None,
    "resume_from_checkpoint": None,
    "gradient_checkpointing_kwargs": None,
    "local_rank": -1,
    "seed": 42,
}
_TRL_DEFAULTS: Mapping[str, object] = {
    "fp16": False,
    "model_init_kwargs": None,
    "resume_from_checkpoint": None,
    "deepspeed": None,
    "seed": 42,
    "gradient_checkpointing_kwargs": None,
    "packing": False,
    "gradient_accumulation_steps": 1,
}
_MODEL_DEFAULTS: Mapping[str, object] = {
    "use_peft": False,
    "load_in_4bit": False,
    "load_in_8bit": False,
    "attn_implementation": None,
    "model_revision": "main",
    "trust_remote_code": False,
    "lora_target_modules": None,
}
ATTRIBUTE_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    **dict.fromkeys(CONFIGS, _TRL_DEFAULTS),
    **dict.fromkeys(PLAIN_ARGUMENTS, _ARGUMENTS_DEFAULTS),
    "ModelConfig": _MODEL_DEFAULTS,
}
# TRL's functions that create configs from the command line; they return None unless one of these is set.
NOTHING_WITHOUT: Mapping[str, tuple[str, ...]] = {
    "get_quantization_config": ("load_in_4bit", "load_in_8bit"),
    "get_peft_config": ("use_peft",),
}
# On in TRL's configs, off in TrainingArguments.
PLAIN_DEFAULTS = ("gradient_checkpointing", "bf16")
# Methods of TrainingArguments that set several at once: method → its arguments → keys.
SETTERS: Mapping[str, Mapping[str, str]] = {
    "set_training": {
        "batch_size": "per_device_train_batch_size",
        "num_epochs": "num_train_epochs",
        **{one: one for one in ("learning_rate", "max_steps", "gradient_accumulation_steps", "gradient_checkpointing")},
    },
    "set_optimizer": {"name": "optim", "learning_rate": "learning_rate"},
    "set_evaluate": {"strategy": "eval_strategy", "batch_size": "per_device_eval_batch_size"},
    "set_dataloader": {
        "train_batch_size": "per_device_train_batch_size",
        "eval_batch_size": "per_device_eval_batch_size",
    },
}
# Modules that define trainers; a class of the same name from elsewhere may be anything.
LIBRARIES = frozenset({"transformers", "trl", "unsloth", "unsloth_zoo"})
TYPES = frozenset({"bfloat16", "float16", "float32"})
# Keys for the row length.
LENGTHS = frozenset({"max_length", "max_seq_length", "block_size", "model_max_length", "max_source_length"})
# Methods that change the dtype of a model's weights, and the new dtype.
CASTS: Mapping[str, str] = {"bfloat16": "bfloat16", "half": "float16", "float": "float32"}
# Arguments that old trainers took themselves, and the config key for them today.
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
# Package → what it exported while its loss still held all logits by default (TRL before 1.9), and no longer exports.
REMOVED: Mapping[str, frozenset[str]] = {
    "trl": frozenset(
        {"setup_chat_format", "get_kbit_device_map", "DataCollatorForCompletionOnlyLM", "ConstantLengthDataset"}
    )
}
_LORA: Mapping[str, str] = {
    "r": "lora_r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "target_modules": "lora_target_modules",
    "target_parameters": "lora_target_parameters",
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
        *("unsloth_tiled_mlp", "use_gradient_checkpointing", "use_exact_model_name"),
    )
}
_UNSLOTH_LORA: Mapping[str, str] = {
    name: name
    for name in (
        *("use_gradient_checkpointing", "offload_layers", "checkpoint_skip_layers", "ensure_weight_tying"),
        "qat_scheme",
    )
}
_QUANTIZATION: Mapping[str, str] = {
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "bnb_4bit_use_double_quant": "use_bnb_nested_quant",
    "bnb_4bit_quant_type": "bnb_4bit_quant_type",
    "bnb_4bit_quant_storage": "bnb_4bit_quant_storage",
}
# Keys that concern only an adapter.
ONLY_ADAPTER = frozenset({*_LORA.values(), "adapter"})
# Keys, and the groups that they belong to, which may be unknown as a whole; other keys are training arguments.
OPEN_KINDS: tuple[tuple[frozenset[str], tuple[str, ...]], ...] = (
    (frozenset({*_LORA.values(), "use_peft"}), ("adapter", "model")),
    (frozenset({*_QUANTIZATION.values(), *_LOADING.values()}), ("quantization", "model")),
    (frozenset({"model_name_or_path", "dataset_name", "datasets", "env"}), ()),
)
OPEN_ARGUMENTS = ("training arguments", "arguments")
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
# Device maps that spread a model over all cards.
SPREADS = ("auto", "balanced", "balanced_low_0", "sequential")
# Keys that are off unless a call sets them, and keys that change what a run needs.
SWITCHES = frozenset({"use_peft", "load_in_4bit", "load_in_8bit"})
DECIDING = frozenset({*SWITCHES, "dtype", "model_name_or_path", "attn_implementation"})
# Keys that follow from the calls of a script and are not arguments.
NO_ARGUMENTS = frozenset({"use_peft", "model_name_or_path", "dataset_name", "datasets", "test_split_size", "env"})
# Defaults of libraries that differ from those of TRL's command.
LORA_DEFAULTS: Mapping[str, object] = {"lora_r": 8, "lora_alpha": 8, "lora_dropout": 0.0}
# How the classes of models with a head for classes end → the objective.
HEADS: Mapping[str, str] = {
    "ForSequenceClassification": "classes",
    "ForMultipleChoice": "classes",
    "ForTokenClassification": "token_classes",
    "ForQuestionAnswering": "token_classes",
}
# How the classes of models end whose decoder attends to an encoder.
TWO_STACKS = ("ForSeq2SeqLM", "ForSpeechSeq2Seq", "ForConditionalGeneration")
UNSLOTH_MODELS = frozenset({"FastLanguageModel", "FastModel", "FastVisionModel"})
# The models that compile transformers' own modules.
UNSLOTH_COMPILED = frozenset({"FastModel", "FastVisionModel"})
UNSLOTH = "unsloth"
PREPARES = frozenset({"prepare_model_for_kbit_training", "prepare_model_for_int8_training"})
# Calls that return the model they are given, or are methods of it.
PASSES_ON = frozenset(
    {
        *("to", "cuda", "half", "bfloat16", "float", "train", "prepare", "setup_chat_format", "prepare_model"),
        *("DataParallel", "DistributedDataParallel", "compile", "deepcopy", "merge_and_unload", "requires_grad_"),
        *("for_training", "eval", "get_base_model"),
    }
)
# Methods that change a run, in addition to those in the model's chain.
METHODS = frozenset(
    {
        *("gradient_checkpointing_enable", "gradient_checkpointing_disable", "add_adapter", "empty_cache"),
        *("to", *CASTS, *SETTERS),
    }
)
