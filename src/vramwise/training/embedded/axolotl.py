"""Which keys of an Axolotl file the transformers engine honours. A key that it would ignore is an error.

Three kinds: honoured keys (some only for certain values); keys that do not affect the training result (caches, number
of tokenizing processes); and all others, which are refused unless they are off: null, empty, or the trainer's default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vramwise.rules.base import Hit
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.training.embedded.plain_arguments import ATTENTION, OPTIMIZERS, is_off, refused_where, words_of
from vramwise.training.sources import source_problems
from vramwise.types import Config, RunSpec

_LIGER = "LigerPlugin"
_GUARD = "MemoryGuardPlugin"


HONOURED = words_of(
    """
    base_model revision_of_model trust_remote_code tokenizer_config overrides_of_model_config special_tokens tokens
    chat_template chat_template_jinja default_system_message
    datasets test_datasets val_set_size train_on_inputs sequence_len eval_sequence_len min_sample_len
    excess_length_strategy shuffle_merged_datasets
    sample_packing eval_sample_packing sample_packing_sequentially curriculum_sampling multipack_real_batches
    pad_to_sequence_len pad_to_multiple_of group_by_length
    micro_batch_size gradient_accumulation_steps batch_size eval_batch_size num_epochs max_steps
    eval_steps evals_per_epoch eval_strategy evaluation_strategy
    save_steps saves_per_epoch save_strategy save_total_limit save_only_model
    load_best_model_at_end metric_for_best_model greater_is_better early_stopping_patience
    resume_from_checkpoint auto_resume_from_checkpoints output_dir
    adapter lora_r lora_alpha lora_dropout lora_target_modules lora_target_linear lora_modules_to_save
    lora_fan_in_fan_out peft_use_dora peft_use_rslora peft_init_lora_weights peft_autocast_adapter_dtype
    peft_layers_to_transform lora_rank_pattern lora_alpha_pattern
    load_in_4bit load_in_8bit bnb_config_kwargs
    optimizer optim_args learning_rate lr_scheduler lr_scheduler_kwargs cosine_min_lr_ratio warmup_steps warmup_ratio
    weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm neftune_noise_alpha
    bf16 fp16 bfloat16 float16 tf32
    gradient_checkpointing gradient_checkpointing_kwargs attn_implementation flash_attention sdp_attention
    eager_attention flex_attention torch_compile torch_compile_backend torch_compile_mode
    plugins liger_rope liger_rms_norm liger_layer_norm liger_glu_activation liger_swiglu liger_cross_entropy
    liger_fused_linear_cross_entropy
    fsdp fsdp_config fsdp_version deepspeed ddp_timeout ddp_bucket_cap_mb ddp_broadcast_buffers
    ddp_find_unused_parameters tensor_parallel_size context_parallel_size sequence_parallel_degree
    dataloader_num_workers dataloader_pin_memory dataloader_prefetch_factor logging_steps seed
    use_wandb wandb_project wandb_entity wandb_name wandb_run_id wandb_mode wandb_watch wandb_log_model
    use_tensorboard type_of_model
    """
)

# These do not affect the result: caches, parallel tokenizing, hints that only Axolotl needs, serving.
WITHOUT_EFFECT = words_of(
    """
    dataset_prepared_path dataset_num_proc dataset_processes dataset_keep_in_memory preprocess_iterable strict
    is_llama_derived_model is_mistral_derived_model is_falcon_derived_model is_qwen_derived_model
    sample_packing_group_size sample_packing_bin_size sample_packing_eff_est sample_packing_mp_start_method
    include_tokens_per_second include_tkps gradio_title gradio_share gradio_server_name gradio_server_port
    gradio_max_new_tokens gradio_temperature merge_method low_cpu_mem_usage local_rank
    axolotl_config_path is_preprocess tokenizer_save_jinja_files tokenizer_use_fast hf_use_auth_token
    lora_on_cpu ddp tokenizer_type save_safetensors
    """
)

DATASET_KEYS = words_of(
    """
    path name split revision data_files ds_type type field field_messages message_field_role message_field_content
    message_property_mappings roles roles_to_train train_on_eos chat_template chat_template_jinja
    """
)
FSDP_KEYS = words_of(
    """
    offload_params auto_wrap_policy transformer_layer_cls_to_wrap min_num_params cpu_ram_efficient_loading
    state_dict_type reshard_after_forward activation_checkpointing fsdp_version version
    """
)
DATASET_TYPES = ("alpaca", "completion", "chat_template", "messages", "input_output")
_TORCH_OPTIMIZERS = frozenset({"adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adagrad", "rmsprop"})
_SCHEDULES = words_of(
    """
    linear cosine cosine_with_restarts polynomial constant constant_with_warmup inverse_sqrt cosine_with_min_lr
    warmup_stable_decay
    """
)


def unsupported(run: RunSpec) -> Iterator[Hit]:
    """Yield what the engine cannot honour in an Axolotl file."""
    for found in (_keys, _values, _dataset_blocks, _fsdp_block, _plugins):
        yield from found(run)


def _keys(run: RunSpec) -> Iterator[Hit]:
    config, schema = run.config, schema_of(run)
    other_names = schema.aliases()
    for key, value in config.document.values.items():
        name = other_names.get(key, key)
        if name in HONOURED or name in WITHOUT_EFFECT or is_off(value, schema.defaults().get(name)):
            continue
        yield Hit(f"{key} is not supported by the transformers engine", str(key))


def _values(run: RunSpec) -> Iterator[Hit]:
    get: Callable[..., Any] = run.config.get
    adapter, attention, sharding = run.adapter.kind, run.kernels.attn_implementation, run.sharding
    schedule, strategy = get("lr_scheduler", "cosine"), get("excess_length_strategy", "drop")
    model_class = str(get("type_of_model") or get("model_type") or "AutoModelForCausalLM")
    yield from refused_where(
        (adapter not in (None, "lora", "qlora"), "adapter", f"adapter {adapter} is neither lora nor qlora"),
        (run.optimizer.name not in OPTIMIZERS, "optimizer", f"optimizer {run.optimizer.name} is not supported"),
        (schedule not in _SCHEDULES, "lr_scheduler", f"lr_scheduler {schedule} is not one of transformers' own"),
        (
            attention not in ATTENTION,
            "attn_implementation",
            f"attention {attention} is not one of {', '.join(ATTENTION)}",
        ),
        (
            isinstance(get("gradient_checkpointing"), str),
            "gradient_checkpointing",
            f"gradient_checkpointing: {get('gradient_checkpointing')} (offloading) is not supported: use true",
        ),
        (
            sharding.tensor_parallel_size * sharding.context_parallel_size > 1,
            "tensor_parallel_size",
            "tensor and context parallelism are not supported",
        ),
        (run.precision.compute == "fp8", "fp8", "fp8 is not supported"),
        (run.loading.quantization == "gptq", "gptq", "gptq checkpoints are not supported"),
        (
            not model_class.endswith("ForCausalLM"),
            "type_of_model",
            f"type_of_model {model_class}: only causal language models are trained",
        ),
        (
            strategy not in ("drop", "truncate", "raise"),
            "excess_length_strategy",
            f"excess_length_strategy {strategy} is neither drop, truncate nor raise",
        ),
        (
            get("chat_template", "tokenizer_default") not in ("tokenizer_default", "chatml", "jinja"),
            "chat_template",
            f"chat_template {get('chat_template')}: use tokenizer_default, chatml, or jinja with chat_template_jinja",
        ),
        (not get("datasets"), "datasets", "datasets is empty: nothing to train on"),
        (
            sharding.kind == "fsdp1" or str(get("fsdp_version", 2)) != "2",
            "fsdp_config",
            "FSDP1 is not supported: set fsdp_version: 2",
        ),
        (
            not set(_listed(get("fsdp"))) <= {"full_shard", "auto_wrap"},
            "fsdp",
            "fsdp: only full_shard and auto_wrap are supported; use fsdp_config",
        ),
        (
            get("cosine_min_lr_ratio") is not None and schedule != "cosine",
            "cosine_min_lr_ratio",
            f"cosine_min_lr_ratio has no effect with lr_scheduler {schedule}",
        ),
        (
            get("save_safetensors") is False,
            "save_safetensors",
            "save_safetensors: false is not supported: transformers saves safetensors only",
        ),
    )


def _listed(written: Any) -> list[str]:
    several = isinstance(written, (list, tuple, dict))
    return [str(one) for one in written] if several else str(written or "").split()


def _fsdp_block(run: RunSpec) -> Iterator[Hit]:
    for key, value in run.config.get("fsdp_config", {}).items():
        full = key == "final_state_dict_type" and value == "FULL_STATE_DICT"
        if key not in FSDP_KEYS and value not in (None, False, "") and not full:
            yield Hit(f"fsdp_config.{key}: {value} is not supported", f"fsdp_config.{key}")


def _dataset_blocks(run: RunSpec) -> Iterator[Hit]:
    config = run.config
    for name in ("datasets", "test_datasets"):
        for index, block in enumerate(config.get(name, ())):
            for key, message in (*_dataset_problems(block), *_source_problems(block, config)):
                yield Hit(message, f"{name}.{index}.{key}" if key else f"{name}.{index}")


def _source_problems(block: Any, config: Config) -> Iterator[tuple[str, str]]:
    if isinstance(block, dict):
        yield from source_problems(block, Path(config.document.path).parent)


def _dataset_problems(block: Any) -> Iterator[tuple[str, str]]:
    """Yield keys of a dataset's block, and what is wrong with them."""
    if not isinstance(block, dict):
        yield "", "a dataset must be a block with path and type"
        return
    for key, value in block.items():
        if key not in DATASET_KEYS and value not in (None, False, "", [], {}):
            yield str(key), f"dataset key {key} is not supported by the transformers engine"
    kind = block.get("type")
    if kind not in DATASET_TYPES:
        shown = "a custom format" if isinstance(kind, dict) else str(kind)
        yield "type", f"dataset type {shown} is not supported: one of {', '.join(DATASET_TYPES)}"
    if block.get("train_on_eos") not in (None, "turn"):
        yield "train_on_eos", "train_on_eos is only supported as turn"
    if block.get("chat_template") not in (None, "tokenizer_default", "chatml", "jinja"):
        yield "chat_template", f"chat_template {block['chat_template']}: use tokenizer_default, chatml or jinja"


def _plugins(run: RunSpec) -> Iterator[Hit]:
    config = run.config
    liger = any(str(plugin).endswith(_LIGER) for plugin in config.get("plugins", ()))
    for key in sorted(HONOURED):
        if key.startswith("liger_") and config.document.values.get(key) and not liger:
            yield Hit(f"{key} without axolotl.integrations.liger.LigerPlugin in plugins has no effect", key)
    for plugin in config.get("plugins", ()):
        if not str(plugin).endswith((_LIGER, _GUARD)):
            yield Hit(f"plugin {plugin} is not supported by the transformers engine", "plugins")


def needed_modules(run: RunSpec) -> list[str]:
    """Return modules beyond the basics that this config needs, so that missing ones are found before loading."""
    config = run.config
    bnb = run.optimizer.name not in _TORCH_OPTIMIZERS
    wants = (
        ("peft", run.adapter.kind is not None),
        ("bitsandbytes", bnb or run.loading.quantization in ("4bit", "8bit")),
        ("liger_kernel", bool(run.kernels.liger) or run.kernels.loss_kernel.startswith("liger")),
        ("deepspeed", run.sharding.is_zero),
        ("wandb", wants_wandb(config) or "wandb" in _listed(config.get("report_to"))),
        ("tensorboard", bool(config.get("use_tensorboard")) or "tensorboard" in _listed(config.get("report_to"))),
        ("flash_attn", run.kernels.attn_implementation == "flash_attention_2"),
    )
    return [name for name, wanted in wants if wanted]


def wants_wandb(config: Config) -> bool:
    """Return whether wandb is requested: by use_wandb or a project; wandb_mode: disabled means no."""
    if config.get("wandb_mode") == "disabled" or config.get("use_wandb") is False:
        return False
    return bool(config.get("use_wandb") or config.get("wandb_project"))
