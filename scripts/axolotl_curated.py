"""Facts about Axolotl 0.19.0 that its schema does not spell out: read in its validators and its trainer builder.

Optimizer and scheduler names are those of transformers 5.16.1 (the version it pins) plus Axolotl's own enumeration.
"""

from __future__ import annotations

from typing import Any

ATTENTION: dict[str, Any] = {
    "names": [
        "eager",
        "sdpa",
        "flash_attention_2",
        "flash_attention_3",
        "flash_attention_4",
        "flash_attention_torch",
        "flex_attention",
        "xformers",
        "sage",
        "fp8",
    ],
    # In the order in which they win when several are set.
    "legacy_flags": {
        "xformers_attention": "xformers",
        "sage_attention": "sage",
        "flex_attention": "flex_attention",
        "flash_attention": "flash_attention_2",
        "sdp_attention": "sdpa",
        "eager_attention": "eager",
    },
    "refused_short_names": {"flash": "flash_attention_2", "flex": "flex_attention", "sdp": "sdpa"},
    # Packing keeps samples apart by position ids, in one row; hub kernels are named by repository.
    "varlen_packing": [
        "flash_attention_2",
        "flash_attention_3",
        "flash_attention_4",
        "flash_attention_torch",
        "flex_attention",
        "xformers",
        "sage",
        "kernels-community/flash-attn2",
        "kernels-community/flash-attn3",
        "kernels-community/sage-attention",
    ],
    "flash_library": [
        "flash_attention_2",
        "flash_attention_3",
        "kernels-community/flash-attn2",
        "kernels-community/flash-attn3",
    ],
    # A full fine-tune keeps embeddings, head and norms in fp32 under these.
    "fp32_embeddings": ["eager", "sdpa"],
}

OPTIMIZERS: dict[str, list[str]] = {
    "transformers": [
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
    ],
    "axolotl": [
        "optimi_adamw",
        "ao_adamw_4bit",
        "ao_adamw_8bit",
        "ao_adamw_fp8",
        "adopt_adamw",
        "adamc",
        "came_pytorch",
        "muon",
        "dion",
        "sinkgd",
        "polora",
        "flash_adamw",
        "flash_adam",
        "flash_sgd",
        "flash_sgdw",
        "flash_lion",
        "q_galore_adamw8bit",
    ],
}

OPTIMIZER_GROUPS: dict[str, list[str]] = {
    # Two unquantised states a parameter, of AdamW's kind.
    "adamw_like": [
        "adamw_torch",
        "adamw_torch_fused",
        "adamw_torch_xla",
        "adamw_torch_npu_fused",
        "adamw_anyprecision",
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
    # The schema takes them, the trainer builder has no branch for them and raises after the model has loaded.
    "raises_later": ["ao_adamw_4bit", "ao_adamw_8bit"],
}

# The module that must be importable besides what Axolotl installs by default.
OPTIMIZER_PACKAGES: dict[str, str] = {
    **dict.fromkeys(("optimi_adamw", "stable_adamw"), "optimi"),
    "came_pytorch": "came_pytorch",
    "q_galore_adamw8bit": "q_galore_torch",
    **dict.fromkeys(OPTIMIZER_GROUPS["flash"], "flashoptim"),
    **dict.fromkeys([name for name in OPTIMIZERS["transformers"] if name.startswith("galore_")], "galore_torch"),
    **dict.fromkeys(("apollo_adamw", "apollo_adamw_layerwise"), "apollo_torch"),
    **dict.fromkeys(("lomo", "adalomo"), "lomo_optim"),
    "grokadamw": "grokadamw",
    "adamw_anyprecision": "torchdistx",
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

ADAPTERS = {
    "built_in": ["lora", "qlora", "llama-adapter"],
    "by_plugin": {"mora": "axolotl.integrations.mora.MoraPlugin"},
}

TORCH_COMPILE_OPTIONS = [
    "assume_aligned_inputs",
    "comprehensive_padding",
    "coordinate_descent_check_all_directions",
    "coordinate_descent_tuning",
    "decompose_mem_bound_mm",
    "epilogue_fusion",
    "fx_graph_cache",
    "max_autotune_gemm",
    "shape_padding",
    "triton.cudagraphs",
]

# Mappings whose fields the schema leaves open; the names are torch's and peft's.
OPEN_BLOCKS = {
    "gradient_checkpointing_kwargs": {
        "use_reentrant": "bool?",
        "preserve_rng_state": "bool?",
        "determinism_check": "str?",
        "debug": "bool?",
        "early_stop": "bool?",
    },
    "torch_compile_options": dict.fromkeys(TORCH_COMPILE_OPTIONS, "bool|int|float|str"),
}

# effect: refused = Axolotl stops when the key is set (null, and false where `unless_false`, pass);
#         mapped = taken over into the successor; works = still read as it is; ignored = accepted and never read.
DEPRECATED: dict[str, dict[str, Any]] = {
    "max_packed_sequence_len": {"effect": "refused", "successor": "sample_packing", "unless_false": True},
    "rope_scaling": {"effect": "refused", "successor": "overrides_of_model_config.rope_scaling", "unless_false": True},
    "s2_attention": {"effect": "refused", "successor": None, "unless_false": True},
    "flash_attn_rms_norm": {"effect": "refused", "successor": "liger_rms_norm", "unless_false": True},
    "dpo_use_logits_to_keep": {"effect": "refused", "successor": None},
    "dpo_generate_during_eval": {"effect": "refused", "successor": None},
    "dpo_norm_loss": {"effect": "refused", "successor": None},
    "rpo_alpha": {"effect": "refused", "successor": None},
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
    **{flag: {"effect": "mapped", "successor": "attn_implementation"} for flag in ATTENTION["legacy_flags"]},
    "eval_table_size": {"effect": "works", "successor": "generate_samples"},
    "eval_max_new_tokens": {"effect": "works", "successor": "generation_max_new_tokens"},
    "fsdp": {"effect": "works", "successor": "fsdp_config"},
    "fsdp_final_state_dict_type": {"effect": "ignored", "successor": "fsdp_config.final_state_dict_type"},
}
