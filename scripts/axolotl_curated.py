"""Facts about Axolotl that its schema does not spell out: read in its validators and its trainer builder.

Read and compared for 0.18.0, 0.19.0, 0.20.0 and 0.21.0; older releases by what their source says. What one version has
and another has not is filtered by the names that the version knows, or stands in a table under the version that brought
it. The optimizer and scheduler names of transformers are the same from 5.14.1 to 5.20.1; the generator compares them
with the wheel of the version pinned.
"""

from __future__ import annotations

from typing import Any

TRANSFORMERS_OPTIMIZERS: list[str] = [
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_torch_xla",
    "adamw_torch_npu_fused",
    "adafactor",
    "adamw_anyprecision",
    "adamw_torch_4bit",
    "adamw_torch_8bit",
    "ademamix",
    "sgd",
    "adagrad",
    "adamw_bnb_8bit",
    "adamw_8bit",
    "ademamix_8bit",
    "lion_8bit",
    "lion_32bit",
    "paged_adamw_32bit",
    "paged_adamw_8bit",
    "paged_ademamix_32bit",
    "paged_ademamix_8bit",
    "paged_lion_32bit",
    "paged_lion_8bit",
    "rmsprop",
    "rmsprop_bnb",
    "rmsprop_bnb_8bit",
    "rmsprop_bnb_32bit",
    "galore_adamw",
    "galore_adamw_8bit",
    "galore_adafactor",
    "galore_adamw_layerwise",
    "galore_adamw_8bit_layerwise",
    "galore_adafactor_layerwise",
    "lomo",
    "adalomo",
    "grokadamw",
    "schedule_free_radam",
    "schedule_free_adamw",
    "schedule_free_sgd",
    "apollo_adamw",
    "apollo_adamw_layerwise",
    "stable_adamw",
    "adamw_hf",
    "adamw_apex_fused",
]

OPTIMIZER_GROUPS: dict[str, list[str]] = {
    # Two unquantised states a parameter, of AdamW's kind.
    "adamw_like": [
        "adamw_torch",
        "adamw_torch_fused",
        "adamw_torch_xla",
        "adamw_torch_npu_fused",
        "adamw_anyprecision",
        "adamw_hf",
        "adamw_apex_fused",
        "paged_adamw_32bit",
        "grokadamw",
        "stable_adamw",
        "schedule_free_adamw",
        "schedule_free_radam",
        "optimi_adamw",
        "adopt_adamw",
        "adamc",
    ],
    "bitsandbytes_8bit": [
        "adamw_bnb_8bit",
        "adamw_8bit",
        "ademamix_8bit",
        "lion_8bit",
        "paged_adamw_8bit",
        "paged_ademamix_8bit",
        "paged_lion_8bit",
        "rmsprop_bnb_8bit",
    ],
    "bitsandbytes_32bit": [
        "ademamix",
        "lion_32bit",
        "paged_adamw_32bit",
        "paged_ademamix_32bit",
        "paged_lion_32bit",
        "rmsprop_bnb",
        "rmsprop_bnb_32bit",
    ],
    "paged": [
        "paged_adamw_32bit",
        "paged_adamw_8bit",
        "paged_ademamix_32bit",
        "paged_ademamix_8bit",
        "paged_lion_32bit",
        "paged_lion_8bit",
    ],
    "torchao": ["adamw_torch_4bit", "adamw_torch_8bit", "ao_adamw_fp8"],
    # The update happens inside backward, layer by layer: gradients of the whole model never exist together.
    "layerwise": [
        "galore_adamw_layerwise",
        "galore_adamw_8bit_layerwise",
        "galore_adafactor_layerwise",
        "apollo_adamw_layerwise",
        "lomo",
        "adalomo",
    ],
    "needs_target_modules": [
        "galore_adamw",
        "galore_adamw_8bit",
        "galore_adafactor",
        "galore_adamw_layerwise",
        "galore_adamw_8bit_layerwise",
        "galore_adafactor_layerwise",
        "apollo_adamw",
        "apollo_adamw_layerwise",
    ],
    "flash": ["flash_adamw", "flash_adam", "flash_sgd", "flash_sgdw", "flash_lion"],
}

# The module that must be importable besides what Axolotl installs by default.
OPTIMIZER_PACKAGES: dict[str, str] = {
    **dict.fromkeys(("optimi_adamw", "stable_adamw"), "optimi"),
    "came_pytorch": "came_pytorch",
    "scao": "scao",
    "q_galore_adamw8bit": "q_galore_torch",
    **dict.fromkeys(OPTIMIZER_GROUPS["flash"], "flashoptim"),
    **dict.fromkeys([name for name in TRANSFORMERS_OPTIMIZERS if name.startswith("galore_")], "galore_torch"),
    **dict.fromkeys(("apollo_adamw", "apollo_adamw_layerwise"), "apollo_torch"),
    **dict.fromkeys(("lomo", "adalomo"), "lomo_optim"),
    "grokadamw": "grokadamw",
    "adamw_anyprecision": "torchdistx",
    "adamw_apex_fused": "apex",
    "adamw_torch_xla": "torch_xla",
    "adamw_torch_npu_fused": "torch_npu",
}

LR_SCHEDULERS = [
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "reduce_lr_on_plateau",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "warmup_stable_decay",
    "greedy",
    "one_cycle",
    "rex",
]
# Those that Axolotl's trainer makes itself; the rest is transformers'.
OWN_LR_SCHEDULERS = ["one_cycle", "rex"]

BUILT_IN_ADAPTERS = ["lora", "qlora", "llama-adapter"]
PLUGIN_ADAPTERS = {
    "mora": "axolotl.integrations.mora.MoraPlugin",
    "mixlora": "axolotl.integrations.mixlora.MixLoraPlugin",
}

# A mapping whose fields the schema leaves open; the names are torch's.
CHECKPOINTING_KWARGS = {
    "use_reentrant": "bool?",
    "preserve_rng_state": "bool?",
    "determinism_check": "str?",
    "debug": "bool?",
    "early_stop": "bool?",
}

# effect: refused = Axolotl stops when the key is set (null, and false where `unless_false`, pass);
#         mapped = taken over into the successor; works = still read as it is; ignored = accepted and never read.
# A key without a successor has none. The old attention flags are added from the schema's own table.
DEPRECATED: dict[str, dict[str, Any]] = {
    "max_packed_sequence_len": {"effect": "refused", "successor": "sample_packing", "unless_false": True},
    "rope_scaling": {"effect": "refused", "successor": "overrides_of_model_config.rope_scaling", "unless_false": True},
    "s2_attention": {"effect": "refused", "unless_false": True},
    "flash_attn_rms_norm": {"effect": "refused", "successor": "liger_rms_norm", "unless_false": True},
    "dpo_use_logits_to_keep": {"effect": "refused"},
    "dpo_generate_during_eval": {"effect": "refused"},
    "dpo_norm_loss": {"effect": "refused"},
    "rpo_alpha": {"effect": "refused"},
    "unsloth_cross_entropy_loss": {"effect": "refused", "successor": "cut_cross_entropy", "unless_false": True},
    "unsloth_lora_mlp": {"effect": "refused", "successor": "lora_mlp_kernel", "unless_false": True},
    "unsloth_lora_qkv": {"effect": "refused", "successor": "lora_qkv_kernel", "unless_false": True},
    "unsloth_lora_o": {"effect": "refused", "successor": "lora_o_kernel", "unless_false": True},
    "unsloth_rms_norm": {"effect": "refused", "successor": "liger_rms_norm", "unless_false": True},
    "unsloth_rope": {"effect": "refused", "successor": "liger_rope", "unless_false": True},
    "noisy_embedding_alpha": {"effect": "mapped", "successor": "neftune_noise_alpha"},
    "dpo_beta": {"effect": "mapped", "successor": "rl_beta"},
    "evaluation_strategy": {"effect": "mapped", "successor": "eval_strategy"},
    "pretrain_multipack_buffer_size": {"effect": "mapped", "successor": "streaming_multipack_buffer_size"},
    "dataset_processes": {"effect": "mapped", "successor": "dataset_num_proc"},
    "gc_steps": {"effect": "mapped", "successor": "torch_empty_cache_steps"},
    "sequence_parallel_degree": {"effect": "mapped", "successor": "context_parallel_size"},
    "flash_attn_d512": {"effect": "mapped", "successor": "large_head_attention"},
    "liger_swiglu": {"effect": "mapped", "successor": "liger_glu_activation"},
    "eval_table_size": {"effect": "works", "successor": "generate_samples"},
    "eval_max_new_tokens": {"effect": "works", "successor": "generation_max_new_tokens"},
    "fsdp": {"effect": "works", "successor": "fsdp_config"},
    "fsdp_final_state_dict_type": {"effect": "ignored", "successor": "fsdp_config.final_state_dict_type"},
}

# What a version changed in the table above, for itself and those after it. FSDP 1 left with 0.20.
DEPRECATED_SINCE: dict[str, dict[str, dict[str, Any]]] = {
    "0.20.0": {
        "fsdp": {"effect": "refused", "successor": "fsdp_config", "unless_false": True},
        "fsdp_config.sharding_strategy": {"effect": "refused", "successor": "fsdp_config.reshard_after_forward"},
        "fsdp_config.forward_prefetch": {"effect": "refused"},
        **{
            f"fsdp_config.{name}": {"effect": "ignored"}
            for name in (
                "sync_module_states",
                "backward_prefetch",
                "backward_prefetch_policy",
                "limit_all_gathers",
                "use_orig_params",
            )
        },
        "ring_attn_func": {"effect": "ignored", "successor": "context_parallel"},
        "heads_k_stride": {"effect": "ignored"},
    },
    "0.21.0": {"diffusion": {"effect": "mapped", "successor": "diffusion_lm"}},
}

UNSLOTH = frozenset(key for key in DEPRECATED if key.startswith("unsloth_"))


def optimizer_groups(known: set[str], unhandled: list[str]) -> dict[str, list[str]]:
    """The groups, with the names that the version knows."""
    groups = {group: [name for name in names if name in known] for group, names in OPTIMIZER_GROUPS.items()}
    # The schema takes them, the trainer builder has no branch for them and raises after the model has loaded.
    return {**groups, "raises_later": unhandled}


def optimizer_packages(known: set[str]) -> dict[str, str]:
    """The packages, for the names that the version knows."""
    return {name: package for name, package in OPTIMIZER_PACKAGES.items() if name in known}


def deprecated(
    version: str, legacy_flags: dict[str, str], keys: set[str], leaving: set[str]
) -> dict[str, dict[str, Any]]:
    """The keys on their way out in a version. `keys`: those of its schema; `leaving`: those that it has for this alone.

    Before 0.18 a key of the table is on its way out if the schema says so, or has its successor beside it.
    """
    table = dict(DEPRECATED)
    if _number(version) < _number("0.18.0"):
        table = {
            key: fact
            for key, fact in table.items()
            if key in leaving
            or (key in UNSLOTH and key not in keys)
            or (fact["effect"] != "refused" and {key, fact.get("successor")} <= keys)
        }
    table |= {flag: {"effect": "mapped", "successor": "attn_implementation"} for flag in legacy_flags}
    for since, changed in DEPRECATED_SINCE.items():
        if _number(since) <= _number(version):
            table |= changed
    return table


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
