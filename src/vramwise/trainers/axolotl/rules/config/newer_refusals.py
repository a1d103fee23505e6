"""Combinations that Axolotl refuses from some version on: a table for the rule refused-combination."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from vramwise.trainers.axolotl.plugins import lists_plugin
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec

# Starts of an adapter that do not look at the base's weights.
_PLAIN_INIT = (None, True, False, "gaussian")
_RL = ("rl", "reward_model", "process_reward_model")
_FUSED = ("cut_cross_entropy", "liger_fused_linear_cross_entropy", "chunked_cross_entropy")
_SEQUENTIAL = ("sample_packing_sequentially", "curriculum_sampling", "diffusion_lm", *_RL)
_WHOLE_DATA = ("streaming", "pretraining_dataset", "group_by_length")


class Refusal(NamedTuple):
    """Since which version what is refused: the key to blame, when, and why."""

    since: str
    key: str
    applies: Callable[[RunSpec], object]
    why: str


def newer_refusals(run: RunSpec) -> Iterator[tuple[str, str]]:
    """(key, message) of every combination in the file that this version refuses."""
    schema = schema_of(run)
    for refusal in _REFUSALS:
        if schema.since(refusal.since) and refusal.applies(run):
            since = refusal.since.removesuffix(".0")
            yield refusal.key, f"{refusal.key} {refusal.why}: refused since Axolotl {since}"


def _on(run: RunSpec, key: str) -> Any:
    return run.config.get(key)


def _any(run: RunSpec, *keys: str) -> bool:
    return any(run.config.get(key) for key in keys)


def _own_loss(key: str) -> Callable[[RunSpec], bool]:
    return lambda run: bool(_on(run, key)) and (_any(run, *_RL, *_FUSED) or run.sharding.context_parallel_size > 1)


def _reads_weights(run: RunSpec) -> bool:
    return _on(run, "peft_init_lora_weights") not in _PLAIN_INIT or bool(_on(run, "peft.loftq_config"))


def _staged(run: RunSpec) -> bool:
    """Whether rank 0 quantises on its CPU, or torchao does; without FSDP the former is dropped with a warning."""
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


_REFUSALS = (
    Refusal("0.20.0", "use_dft", lambda run: _any(run, "use_dft") and _any(run, "use_eaft"), "beside use_eaft"),
    Refusal("0.20.0", "use_dft", _own_loss("use_dft"), "with RL, a fused or chunked loss or context parallelism"),
    Refusal("0.20.0", "use_eaft", _own_loss("use_eaft"), "with RL, a fused or chunked loss or context parallelism"),
    Refusal(
        "0.20.0",
        "lora_fp32_gradients",
        lambda run: _on(run, "lora_fp32_gradients") and run.adapter.kind not in ("lora", "qlora", "multilora"),
        "without a LoRA adapter",
    ),
    Refusal(
        "0.20.0",
        "peft_init_lora_weights",
        lambda run: _on(run, "lora_target_parameters") and _reads_weights(run),
        "with lora_target_parameters: this start reads a weight that fused experts do not have",
    ),
    Refusal(
        "0.20.0",
        "bnb_config_kwargs",
        lambda run: (
            _on(run, "load_in_4bit")
            and _on(run, "nf4_backend") != "torchao"
            and run.config.get("bnb_config_kwargs.blocksize", 64) != 64
        ),
        "with another blocksize than 64, the only one that bitsandbytes has",
    ),
    Refusal(
        "0.20.0",
        "load_in_4bit",
        _cannot_be_staged,
        "staged on the CPU (fsdp_config.cpu_ram_efficient_loading or nf4_backend torchao) needs qlora in nf4 under "
        "plain FSDP2, without DoRA, lora_modules_to_save or a start that reads the weights",
    ),
    Refusal(
        "0.20.0",
        "cut_cross_entropy_c_grad_chunk_size",
        lambda run: (
            lists_plugin(run, "CutCrossEntropyPlugin")
            and _on(run, "cut_cross_entropy_c_grad_chunk_size")
            and not _on(run, "cut_cross_entropy_accum_c_fp32")
        ),
        "without cut_cross_entropy_accum_c_fp32: true",
    ),
    Refusal(
        "0.21.0",
        "torch_compile_regional",
        lambda run: (
            run.kernels.torch_compile and _on(run, "torch_compile_regional") and run.savings.gradient_checkpointing
        ),
        "with gradient_checkpointing: the recomputation may run other compiled code than forward",
    ),
    Refusal(
        "0.21.0",
        "trl.vllm_mode",
        lambda run: _colocated(run) and run.sharding.context_parallel_size > 1,
        "colocate with context_parallel_size above 1",
    ),
    Refusal(
        "0.21.0",
        "trl.vllm_lora_sync",
        lambda run: _colocated(run) and _on(run, "trl.vllm_lora_sync"),
        "with vllm_mode colocate: it sends adapters to a server",
    ),
    Refusal(
        "0.21.0",
        "trl.vllm_mode",
        lambda run: _colocated(run) and run.adapter.kind and _any(run, "trl.async_prefetch", "trl.use_data_producer"),
        "colocate with an adapter and async_prefetch or use_data_producer",
    ),
    Refusal("0.21.0", "balance_labels", _unbalanced, "with RL, a stream, or an order of samples that is fixed"),
    Refusal(
        "0.21.0",
        "balance_labels",
        lambda run: _any(run, "balance_labels") and _any(run, "accelerator_config.split_batches"),
        "with accelerator_config.split_batches",
    ),
    Refusal(
        "0.21.0",
        "label_balance_window_optim_steps",
        lambda run: _window(run) and (not _on(run, "balance_labels") or _any(run, "streaming", "pretraining_dataset")),
        "above 1 without balance_labels, or with a stream",
    ),
    Refusal(
        "0.21.0",
        "quantize_moe_experts",
        lambda run: (
            lists_plugin(run, "KernelsPlugin")
            and _on(run, "quantize_moe_experts")
            and (_on(run, "use_sonicmoe") or str(_on(run, "expert_backend")).lower() == "sonicmoe")
        ),
        "with sonicmoe, which has no quantised experts",
    ),
)
