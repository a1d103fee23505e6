"""Settings that Axolotl refuses before it loads anything and that have no rule of their own.

Settings that decide memory have their own rules.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, unsafe
from vramwise.trainers.axolotl.plugins import lists_plugin
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec

# Axolotl refuses both keys together. The first is the one to report.
_NOT_TOGETHER = (
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


def refusals(run: RunSpec) -> Iterator[Hit]:
    """Yield every refusal for this file."""
    config = run.config
    for key, other, why in _NOT_TOGETHER:
        if config.get(key) and config.get(other):
            fix = unsafe(f"Delete {key}", delete_key(key))
            yield Hit(f"Axolotl refuses {key} together with {other}: {why}", key, fix)
    for key, other, why in _NEEDS:
        if config.get(key) and not config.get(other):
            yield Hit(f"Axolotl refuses {key} without {other}: {why}", key)
    yield from _single_cases(run)
    yield from _dpo_losses(run)
    for since, found in (("0.20", _since_020), ("0.21", _since_021)):
        for key, why in found(run) if schema_of(run).since(f"{since}.0") else ():
            yield Hit(f"Axolotl {since} and newer refuse {key} {why}", key)
    for key in _MISTRAL_COMMON if config.get("tokenizer_use_mistral_common") else ():
        if config.get(key):
            message = f"Axolotl refuses {key} with tokenizer_use_mistral_common, whose tokenizer cannot be changed"
            yield Hit(message, key)


def _single_cases(run: RunSpec) -> Iterator[Hit]:
    config, rl, attention = run.config, run.objective.rl, run.kernels.attn_implementation
    if rl == "simpo" and config.get("warmup_ratio"):
        yield Hit("Axolotl refuses warmup_ratio with rl: simpo; use warmup_steps", "warmup_ratio")
    if rl == "ebft" and not config.get("ebft"):
        yield Hit("Axolotl refuses rl: ebft without an ebft section; set at least ebft.mode", "rl")
    if rl == "gdpo" and config.get("trl.multi_objective_aggregation") == "sum_then_normalize":
        message = "Axolotl refuses multi_objective_aggregation sum_then_normalize with rl: gdpo: that would be GRPO"
        yield Hit(message, "trl.multi_objective_aggregation")
    if config.get("scaling_softmax") and attention != "flex_attention":
        yield Hit(f"Axolotl refuses scaling_softmax with {attention}: it needs flex_attention", "scaling_softmax")
    if config.get("chat_template") == "jinja" and not config.get("chat_template_jinja"):
        message = "Axolotl refuses chat_template: jinja without chat_template_jinja: the template is missing"
        yield Hit(message, "chat_template")
    alpha = config.get("neftune_noise_alpha")
    if alpha is not None and alpha <= 0 and not config.get("noisy_embedding_alpha"):
        message = f"Axolotl refuses neftune_noise_alpha {alpha}: it must be above 0 or unset"
        yield Hit(message, "neftune_noise_alpha")


def _dpo_losses(run: RunSpec) -> Iterator[Hit]:
    types, weights = run.config.get("dpo_loss_type"), run.config.get("dpo_loss_weights")
    if run.objective.rl == "dpo":
        if weights is not None and types is None:
            yield Hit("Axolotl refuses dpo_loss_weights without dpo_loss_type", "dpo_loss_weights")
        elif weights is not None and len(types) != len(weights):
            counts = f"{len(weights)} dpo_loss_weights for {len(types)} dpo_loss_type"
            yield Hit(f"Axolotl refuses {counts}: each loss needs one weight", "dpo_loss_weights")
        return
    for key, value in (("dpo_loss_type", types), ("dpo_loss_weights", weights)):
        if value is not None:
            found = f"with rl: {run.objective.rl}" if run.objective.rl else "without rl"
            yield Hit(f"Axolotl refuses {key} {found}: it belongs to rl: dpo", key)


def _since_020(run: RunSpec) -> Iterator[tuple[str, str]]:
    """Yield the key and the end of the message of every refusal since Axolotl 0.20."""
    config = run.config
    if config.get("use_dft") and config.get("use_eaft"):
        yield "use_dft", "together with use_eaft"
    other_loss = _any(run, *_RL, *_FUSED) or run.sharding.context_parallel_size > 1
    for key in ("use_dft", "use_eaft"):
        if config.get(key) and other_loss:
            yield key, "with RL, a fused or chunked loss, or context parallelism"
    if config.get("lora_fp32_gradients") and run.adapter.kind not in ("lora", "qlora", "multilora"):
        yield "lora_fp32_gradients", "without a LoRA adapter"
    if config.get("lora_target_parameters") and _reads_weights(run):
        why = "with lora_target_parameters: this initialisation reads a weight that fused experts do not have"
        yield "peft_init_lora_weights", why
    odd_blocks = config.get("bnb_config_kwargs.blocksize", 64) != 64
    if config.get("load_in_4bit") and config.get("nf4_backend") != "torchao" and odd_blocks:
        yield "bnb_config_kwargs", "with a blocksize other than 64, the only one that bitsandbytes supports"
    if _staged(run) and _cannot_be_staged(run):
        yield (
            "load_in_4bit",
            "staged on the CPU (fsdp_config.cpu_ram_efficient_loading or nf4_backend torchao) unless it is qlora in "
            "nf4 under plain FSDP2, without DoRA, lora_modules_to_save or an initialisation that reads the weights",
        )
    chunks = "cut_cross_entropy_c_grad_chunk_size"
    accumulates = config.get("cut_cross_entropy_accum_c_fp32")
    if lists_plugin(run, "CutCrossEntropyPlugin") and config.get(chunks) and not accumulates:
        yield chunks, "without cut_cross_entropy_accum_c_fp32: true"


def _since_021(run: RunSpec) -> Iterator[tuple[str, str]]:
    """Yield the key and the end of the message of every refusal since Axolotl 0.21."""
    config = run.config
    compiles = run.kernels.torch_compile and config.get("torch_compile_regional")
    if compiles and run.savings.gradient_checkpointing:
        why = "with gradient_checkpointing: recomputation may run different compiled code than forward"
        yield "torch_compile_regional", why
    if config.get("trl.use_vllm") and config.get("trl.vllm_mode") == "colocate":
        if run.sharding.context_parallel_size > 1:
            yield "trl.vllm_mode", "colocate with context_parallel_size above 1"
        if config.get("trl.vllm_lora_sync"):
            yield "trl.vllm_lora_sync", "with vllm_mode colocate: it sends adapters to a server"
        if run.adapter.kind and _any(run, "trl.async_prefetch", "trl.use_data_producer"):
            yield "trl.vllm_mode", "colocate with an adapter and async_prefetch or use_data_producer"
    balances, window = config.get("balance_labels"), config.get("label_balance_window_optim_steps")
    fixed = not run.shapes.sample_packing and _any(run, *_WHOLE_DATA)
    if balances and (fixed or _any(run, *_SEQUENTIAL)):
        yield "balance_labels", "with RL, a stream, or a fixed order of samples"
    if balances and config.get("accelerator_config.split_batches"):
        yield "balance_labels", "with accelerator_config.split_batches"
    useless = not balances or _any(run, "streaming", "pretraining_dataset")
    if isinstance(window, int) and window > 1 and useless:
        yield "label_balance_window_optim_steps", "above 1 without balance_labels, or with a stream"
    sonic = config.get("use_sonicmoe") or str(config.get("expert_backend")).lower() == "sonicmoe"
    if lists_plugin(run, "KernelsPlugin") and config.get("quantize_moe_experts") and sonic:
        yield "quantize_moe_experts", "with sonicmoe, which does not support quantised experts"


def _any(run: RunSpec, *keys: str) -> bool:
    return any(run.config.get(key) for key in keys)


def _reads_weights(run: RunSpec) -> bool:
    init = run.config.get("peft_init_lora_weights")
    return init not in _PLAIN_INIT or bool(run.config.get("peft.loftq_config"))


def _loads_on_one_rank(run: RunSpec) -> bool:
    wanted = run.config.get("qlora_sharded_model_loading", run.adapter.kind == "qlora")
    return bool(run.config.get("fsdp_config.cpu_ram_efficient_loading") and wanted)


def _staged(run: RunSpec) -> bool:
    """Return whether rank 0 or torchao quantises on the CPU; without FSDP, Axolotl drops the former with a warning."""
    by_torchao = run.config.get("nf4_backend") == "torchao"
    return by_torchao or (_loads_on_one_rank(run) and bool(run.config.get("load_in_4bit")))


def _cannot_be_staged(run: RunSpec) -> bool:
    config = run.config
    odd_blocks = config.get("nf4_backend") == "torchao" and (
        config.get("bnb_config_kwargs.blocksize", 64) != 64
        or config.get("bnb_config_kwargs.bnb_4bit_use_double_quant", True) is not True
    )
    return bool(
        run.adapter.kind != "qlora"
        or not config.get("load_in_4bit")
        or config.get("load_in_8bit")
        or (config.get("fsdp_config") and not _loads_on_one_rank(run))
        or config.get("deepspeed")
        or run.sharding.tensor_parallel_size > 1
        or run.sharding.context_parallel_size > 1
        or odd_blocks
        or config.get("dp_replicate_size", 1) > 1
        or config.get("bnb_config_kwargs.bnb_4bit_quant_type", "nf4") != "nf4"
        or _any(run, "peft_use_dora", "lora_modules_to_save")
        or _reads_weights(run)
    )
