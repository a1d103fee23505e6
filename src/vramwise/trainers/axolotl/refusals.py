"""Settings that Axolotl refuses before it loads anything and that have no rule of their own.

Each refusal is the key to report and a message. Settings that decide memory have their own rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from vramwise.rules.rows import Refusal, refused_where
from vramwise.trainers.axolotl.plugins import lists_plugin
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec

# Axolotl refuses both keys together. The first is the one to report.
NOT_TOGETHER = (
    ("warmup_ratio", "warmup_steps", "both set the length of the warm-up"),
    ("loraplus_lr_ratio", "lr_groups", "both set learning rates per parameter group"),
    ("include_tokens_per_second", "pretraining_dataset", "the tokens of a stream cannot be counted in advance"),
    ("dataset_exact_deduplication", "pretraining_dataset", "a stream cannot be searched for duplicates"),
    ("dataset_exact_deduplication", "streaming", "a stream cannot be searched for duplicates"),
    ("dataset_exact_deduplication", "skip_prepare_dataset", "duplicates are dropped while the data is prepared"),
    ("revision_of_model", "gptq", "a GPTQ checkpoint is loaded only from the main branch"),
)
# Axolotl refuses the first key without the second.
_NEEDS = (
    ("peft_layers_pattern", "peft_layers_to_transform", "it names where those layers are"),
    ("push_dataset_to_hub", "hf_use_auth_token", "pushing needs a login"),
)
_MISTRAL_COMMON = ("added_tokens_overrides", "special_tokens", "tokens", "chat_template", "processor_kwargs")
# Initialisations of an adapter that do not read the base's weights.
_PLAIN_INIT = (None, True, False, "gaussian")
_RL = ("rl", "reward_model", "process_reward_model")
_FUSED = ("cut_cross_entropy", "liger_fused_linear_cross_entropy", "chunked_cross_entropy")
_SEQUENTIAL = ("sample_packing_sequentially", "curriculum_sampling", "diffusion_lm", *_RL)
_WHOLE_DATA = ("streaming", "pretraining_dataset", "group_by_length")


class Newer(NamedTuple):
    """A refusal since a version: the key to report, the condition, and the end of the message."""

    since: str
    key: str
    applies: Callable[[RunSpec], object]
    why: str


def refusals(run: RunSpec) -> Iterator[Refusal]:
    """Yield every refusal for this file, except two keys together (NOT_TOGETHER)."""
    for key, other, why in _NEEDS:
        if run.config.get(key) and not run.config.get(other):
            yield key, f"Axolotl refuses {key} without {other}: {why}"
    yield from _single_cases(run)
    yield from _dpo_losses(run)
    for newer in _NEWER:
        if schema_of(run).since(newer.since) and newer.applies(run):
            yield newer.key, f"Axolotl {newer.since.removesuffix('.0')} and newer refuse {newer.key} {newer.why}"
    for key in _MISTRAL_COMMON if run.config.get("tokenizer_use_mistral_common") else ():
        if run.config.get(key):
            yield key, f"Axolotl refuses {key} with tokenizer_use_mistral_common, whose tokenizer cannot be changed"


def _single_cases(run: RunSpec) -> Iterator[Refusal]:
    config = run.config
    yield from refused_where(
        (
            run.objective.rl == "simpo" and config.get("warmup_ratio"),
            "warmup_ratio",
            "Axolotl refuses warmup_ratio with rl: simpo; use warmup_steps",
        ),
        (
            run.objective.rl == "ebft" and not config.get("ebft"),
            "rl",
            "Axolotl refuses rl: ebft without an ebft section; set at least ebft.mode",
        ),
        (
            run.objective.rl == "gdpo" and config.get("trl.multi_objective_aggregation") == "sum_then_normalize",
            "trl.multi_objective_aggregation",
            "Axolotl refuses multi_objective_aggregation sum_then_normalize with rl: gdpo: that would be GRPO",
        ),
        (
            config.get("scaling_softmax") and run.kernels.attn_implementation != "flex_attention",
            "scaling_softmax",
            f"Axolotl refuses scaling_softmax with {run.kernels.attn_implementation}: it needs flex_attention",
        ),
        (
            config.get("chat_template") == "jinja" and not config.get("chat_template_jinja"),
            "chat_template",
            "Axolotl refuses chat_template: jinja without chat_template_jinja: the template is missing",
        ),
        (
            _at_most_zero(config.get("neftune_noise_alpha")) and not config.get("noisy_embedding_alpha"),
            "neftune_noise_alpha",
            f"Axolotl refuses neftune_noise_alpha {config.get('neftune_noise_alpha')}: it must be above 0 or unset",
        ),
    )


def _at_most_zero(value: Any) -> bool:
    return value is not None and value <= 0


def _dpo_losses(run: RunSpec) -> Iterator[Refusal]:
    types, weights = run.config.get("dpo_loss_type"), run.config.get("dpo_loss_weights")
    if run.objective.rl == "dpo":
        if weights is not None and types is None:
            yield "dpo_loss_weights", "Axolotl refuses dpo_loss_weights without dpo_loss_type"
        elif weights is not None and len(types) != len(weights):
            counts = f"{len(weights)} dpo_loss_weights for {len(types)} dpo_loss_type"
            yield "dpo_loss_weights", f"Axolotl refuses {counts}: each loss needs one weight"
        return
    for key, value in (("dpo_loss_type", types), ("dpo_loss_weights", weights)):
        if value is not None:
            yield (
                key,
                f"Axolotl refuses {key} {f'with rl: {run.objective.rl}' if run.objective.rl else 'without rl'}: it "
                "belongs to rl: dpo",
            )


def _on(run: RunSpec, key: str) -> Any:
    return run.config.get(key)


def _any(run: RunSpec, *keys: str) -> bool:
    return any(run.config.get(key) for key in keys)


def _own_loss(key: str) -> Callable[[RunSpec], bool]:
    return lambda run: bool(_on(run, key)) and (_any(run, *_RL, *_FUSED) or run.sharding.context_parallel_size > 1)


def _reads_weights(run: RunSpec) -> bool:
    return _on(run, "peft_init_lora_weights") not in _PLAIN_INIT or bool(_on(run, "peft.loftq_config"))


def _staged(run: RunSpec) -> bool:
    """Return whether rank 0 or torchao quantises on the CPU; without FSDP, Axolotl drops the former with a warning."""
    if _on(run, "nf4_backend") == "torchao":
        return True
    efficient = _on(run, "fsdp_config.cpu_ram_efficient_loading")
    wanted = run.config.get("qlora_sharded_model_loading", run.adapter.kind == "qlora")
    return bool(efficient and wanted and _on(run, "load_in_4bit"))


def _cannot_be_staged(run: RunSpec) -> bool:
    if not _staged(run):
        return False
    torchao = _on(run, "nf4_backend") == "torchao"
    spread = _on(run, "deepspeed") or run.sharding.tensor_parallel_size > 1 or run.sharding.context_parallel_size > 1
    blocks = torchao and (
        run.config.get("bnb_config_kwargs.blocksize", 64) != 64
        or run.config.get("bnb_config_kwargs.bnb_4bit_use_double_quant", True) is not True
    )
    unstaged = _on(run, "fsdp_config") and not (
        _on(run, "fsdp_config.cpu_ram_efficient_loading")
        and run.config.get("qlora_sharded_model_loading", run.adapter.kind == "qlora")
    )
    return bool(
        run.adapter.kind != "qlora"
        or not _on(run, "load_in_4bit")
        or _on(run, "load_in_8bit")
        or unstaged
        or spread
        or blocks
        or run.config.get("dp_replicate_size", 1) > 1
        or run.config.get("bnb_config_kwargs.bnb_4bit_quant_type", "nf4") != "nf4"
        or _any(run, "peft_use_dora", "lora_modules_to_save")
        or _reads_weights(run)
    )


def _colocated(run: RunSpec) -> bool:
    return bool(_on(run, "trl.use_vllm")) and _on(run, "trl.vllm_mode") == "colocate"


def _unbalanced(run: RunSpec) -> bool:
    fixed = not run.shapes.sample_packing and _any(run, *_WHOLE_DATA)
    return bool(_on(run, "balance_labels")) and (fixed or _any(run, *_SEQUENTIAL))


def _window(run: RunSpec) -> bool:
    steps = _on(run, "label_balance_window_optim_steps")
    return isinstance(steps, int) and steps > 1


_NEWER = (
    Newer("0.20.0", "use_dft", lambda run: _any(run, "use_dft") and _any(run, "use_eaft"), "together with use_eaft"),
    Newer("0.20.0", "use_dft", _own_loss("use_dft"), "with RL, a fused or chunked loss, or context parallelism"),
    Newer("0.20.0", "use_eaft", _own_loss("use_eaft"), "with RL, a fused or chunked loss, or context parallelism"),
    Newer(
        "0.20.0",
        "lora_fp32_gradients",
        lambda run: _on(run, "lora_fp32_gradients") and run.adapter.kind not in ("lora", "qlora", "multilora"),
        "without a LoRA adapter",
    ),
    Newer(
        "0.20.0",
        "peft_init_lora_weights",
        lambda run: _on(run, "lora_target_parameters") and _reads_weights(run),
        "with lora_target_parameters: this initialisation reads a weight that fused experts do not have",
    ),
    Newer(
        "0.20.0",
        "bnb_config_kwargs",
        lambda run: (
            _on(run, "load_in_4bit")
            and _on(run, "nf4_backend") != "torchao"
            and run.config.get("bnb_config_kwargs.blocksize", 64) != 64
        ),
        "with a blocksize other than 64, the only one that bitsandbytes supports",
    ),
    Newer(
        "0.20.0",
        "load_in_4bit",
        _cannot_be_staged,
        "staged on the CPU (fsdp_config.cpu_ram_efficient_loading or nf4_backend torchao) unless it is qlora in nf4 "
        "under plain FSDP2, without DoRA, lora_modules_to_save or an initialisation that reads the weights",
    ),
    Newer(
        "0.20.0",
        "cut_cross_entropy_c_grad_chunk_size",
        lambda run: (
            lists_plugin(run, "CutCrossEntropyPlugin")
            and _on(run, "cut_cross_entropy_c_grad_chunk_size")
            and not _on(run, "cut_cross_entropy_accum_c_fp32")
        ),
        "without cut_cross_entropy_accum_c_fp32: true",
    ),
    Newer(
        "0.21.0",
        "torch_compile_regional",
        lambda run: (
            run.kernels.torch_compile and _on(run, "torch_compile_regional") and run.savings.gradient_checkpointing
        ),
        "with gradient_checkpointing: recomputation may run different compiled code than forward",
    ),
    Newer(
        "0.21.0",
        "trl.vllm_mode",
        lambda run: _colocated(run) and run.sharding.context_parallel_size > 1,
        "colocate with context_parallel_size above 1",
    ),
    Newer(
        "0.21.0",
        "trl.vllm_lora_sync",
        lambda run: _colocated(run) and _on(run, "trl.vllm_lora_sync"),
        "with vllm_mode colocate: it sends adapters to a server",
    ),
    Newer(
        "0.21.0",
        "trl.vllm_mode",
        lambda run: _colocated(run) and run.adapter.kind and _any(run, "trl.async_prefetch", "trl.use_data_producer"),
        "colocate with an adapter and async_prefetch or use_data_producer",
    ),
    Newer("0.21.0", "balance_labels", _unbalanced, "with RL, a stream, or a fixed order of samples"),
    Newer(
        "0.21.0",
        "balance_labels",
        lambda run: _any(run, "balance_labels") and _any(run, "accelerator_config.split_batches"),
        "with accelerator_config.split_batches",
    ),
    Newer(
        "0.21.0",
        "label_balance_window_optim_steps",
        lambda run: _window(run) and (not _on(run, "balance_labels") or _any(run, "streaming", "pretraining_dataset")),
        "above 1 without balance_labels, or with a stream",
    ),
    Newer(
        "0.21.0",
        "quantize_moe_experts",
        lambda run: (
            lists_plugin(run, "KernelsPlugin")
            and _on(run, "quantize_moe_experts")
            and (_on(run, "use_sonicmoe") or str(_on(run, "expert_backend")).lower() == "sonicmoe")
        ),
        "with sonicmoe, which does not support quantised experts",
    ),
)
