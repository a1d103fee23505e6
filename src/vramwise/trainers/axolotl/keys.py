"""Axolotl's keys with facts about each: type and default from the schema, names, plugins, deprecations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

from vramwise.trainers.axolotl.schema import Deprecation, Schema, schema_of_version
from vramwise.trainers.vocabulary import KeyFact

# Keys that set a field of the run with another name.
_FIELDS: dict[str, str] = {
    **dict.fromkeys(("load_in_4bit", "load_in_8bit", "gptq"), "quantization"),
    **dict.fromkeys(("bf16", "fp16", "fp8", "bfloat16", "float16"), "precision"),
    **dict.fromkeys(("flash_attention", "sdp_attention", "eager_attention"), "attn_implementation"),
    **dict.fromkeys(("xformers_attention", "flex_attention", "sage_attention"), "attn_implementation"),
    **dict.fromkeys(("cut_cross_entropy", "chunked_cross_entropy", "liger_cross_entropy"), "loss_kernel"),
    "liger_fused_linear_cross_entropy": "loss_kernel",
    **dict.fromkeys(("liger_rope", "liger_rms_norm", "liger_layer_norm", "liger_glu_activation"), "liger"),
    **dict.fromkeys(("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel"), "lora_kernels"),
    **dict.fromkeys(("fsdp", "fsdp_config", "fsdp_version", "deepspeed"), "sharding"),
    "fsdp_config.offload_params": "offload_params",
    "fsdp_config.reshard_after_forward": "reshard_after_forward",
    "fsdp_config.state_dict_type": "gathers_checkpoints",
    "gradient_checkpointing_kwargs": "checkpointing_reentrant",
    **dict.fromkeys(("val_set_size", "test_datasets", "evals_per_epoch", "eval_strategy"), "evaluates"),
    "quantize_moe_experts": "expert_quantization",
    "sequence_parallel_degree": "context_parallel_size",
    "trl.num_generations": "rows_per_prompt",
    "trl.max_completion_length": "completion_len",
    "vllm.gpu_memory_utilization": "engine_share",
    "batch_size": "effective_batch_size",
}


@cache
def key_facts(version: str) -> Mapping[str, KeyFact]:
    """Return every key of a version: top-level, of plugins and of blocks, including keys that are refused now."""
    schema = schema_of_version(version)
    return {key: _fact(schema, key) for key in sorted({*_keys(schema), *schema.deprecations()})}


def _keys(schema: Schema) -> Iterator[str]:
    yield from schema.keys()
    yield from schema.plugin_keys()
    for block in schema.blocks():
        yield from (f"{block}.{name}" for name in schema.nested_keys(block))


def _fact(schema: Schema, key: str) -> KeyFact:
    old = schema.deprecations().get(key)
    return KeyFact(
        type=schema.key_type(key) or "any",
        default=_default(schema, key),
        names=_names(schema, key),
        needs=_needs(schema, key),
        deprecated=_deprecated(old),
        still_works=old is not None and old.effect in ("mapped", "works"),
        field=_FIELDS.get(key, ""),
        brings_keys=key == "plugins",
    )


def _default(schema: Schema, key: str) -> object:
    block, dot, name = key.rpartition(".")
    if dot:
        return schema.defaults(block).get(schema.nested_name(block, name))
    found = schema.defaults().get(schema.aliases().get(key, key))
    return schema.plugin_defaults().get(key) if found is None else found


def _names(schema: Schema, key: str) -> tuple[str, ...]:
    known: dict[str, Callable[[], frozenset[str]]] = {
        "optimizer": schema.optimizers,
        "attn_implementation": schema.attn_implementations,
        "lr_scheduler": schema.lr_schedulers,
        "adapter": lambda: schema.adapters() | frozenset(schema.plugin_adapters()),
        "plugins": lambda: frozenset(schema.known_plugins()),
    }
    return tuple(sorted(known[key]())) if key in known else ()


def _needs(schema: Schema, key: str) -> str:
    plugin = schema.plugin_keys().get(key.partition(".")[0])
    return plugin if plugin is not None and plugin not in schema.built_in_plugins() else ""


def _deprecated(fact: Deprecation | None) -> str:
    if fact is None:
        return ""
    said = {
        "refused": "Axolotl stops at it",
        "mapped": "it is read as its successor",
        "works": "it still works",
        "ignored": "it is accepted and never read",
    }[fact.effect]
    instead = f": write {fact.successor} instead" if fact.successor else ""
    return f"On its way out, {said}{instead}."
