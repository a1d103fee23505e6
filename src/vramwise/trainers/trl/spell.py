"""Changes as edits of TRL's files: settings without a key in TrainingArguments, and the allocator through `env:`."""

from __future__ import annotations

from typing import Any

from vramwise.allocator.variables import EXPANDABLE, allocator_variable
from vramwise.rules.base import delete_key, insert_key, set_key
from vramwise.trainers.arguments import SPELLERS as COMMON
from vramwise.trainers.arguments import WORDS as COMMON_WORDS
from vramwise.trainers.arguments.spell import put, spell_with
from vramwise.trainers.base import Spelling
from vramwise.trainers.spelling import Speller
from vramwise.trainers.trl.resolve.allocator import SHIPPED
from vramwise.types import Change, Edit, RunSpec

_LIGER = {"rope", "rms_norm", "glu_activation"}
_TYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
WORDS: dict[str, tuple[str, ...]] = {
    **COMMON_WORDS,
    "pad-rows": ("pad_to_multiple_of: the value of max_length",),
    "shorten-rows": ("max_length: half of it",),
    "quantize-base": ("use_peft: true", "load_in_4bit: true"),
    "load-in-bf16": ("dtype: bfloat16",),
    "bf16-weights": ("dtype: bfloat16",),
    "narrower-targets": ("lora_target_modules: [q_proj, k_proj, v_proj, o_proj]",),
    "expandable-segments": ("env:", f"  PYTORCH_ALLOC_CONF: {EXPANDABLE}"),
    "fuse-loss": ("use_liger_kernel: true  # before TRL 1.15; since then no loss holds logits",),
    "pad-for-fp8": ("pad_to_multiple_of: 16",),
    "shard-with-fsdp": ("accelerate_config: fsdp2", "num_processes: the number of GPUs"),
    "shard-with-zero": ("accelerate_config: zero2 (or zero1, zero3)", "num_processes: the number of GPUs"),
    "offload-activations": ("activation_offloading: true",),
    "vllm-share": ("vllm_gpu_memory_utilization: 0.2  # 0.3 where it is not set",),
    "vllm-cache": ("vllm_max_model_length: half of it", "vllm_gpu_memory_utilization: 0.5"),
}


def spell(run: RunSpec, change: Change) -> Spelling | None:
    """Return the edits for all fields of a change, or None if one has no key."""
    return spell_with(SPELLERS, run, change)


def _allocator(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set a variable in the `env:` map, which TRL's command puts into the environment before anything starts."""
    if run.target.alloc_conf is not None or run.config.document.script is not None:
        return None  # the command line decides, or the script's own environment
    name = allocator_variable(run.target.torch)
    block = run.config.document.values.get("env")
    if isinstance(block, dict) and block:
        key = f"env.{name}"
        if key in run.config:
            return (set_key(key, str(value)),)
        return (insert_key(key, str(value), beside=f"env.{next(iter(block))}"),)
    if block is not None:
        return None
    if "env" in run.config:
        return (set_key("env", {name: str(value)}),)
    return (put(run, "env", {name: str(value)}),)


def _weights(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set dtype and drop the old name: both together stop the run or have no effect."""
    name = _TYPES.get(value)
    if name is None or run.config.get("model_init_kwargs.dtype") is not None:
        return None
    dropped = (delete_key("torch_dtype"),) if "torch_dtype" in run.config else ()
    return (put(run, "dtype", name, beside=("torch_dtype", "model_revision", "model_name_or_path")), *dropped)


def _length(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set max_length; with generation, no key limits prompt and completion together."""
    return None if run.objective.generation_rows is not None else (put(run, "max_length", value),)


def _padded(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Pad widths to a multiple of the longest row, which makes all widths equal."""
    if (
        not value
        or run.shapes.sample_packing
        or run.config.get("max_length", run.shapes.sequence_len) != run.shapes.sequence_len
    ):
        return None
    return (put(run, "pad_to_multiple_of", run.shapes.sequence_len),)


def _adapter(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if value not in ("lora", "qlora"):
        return None
    return () if run.config.get("use_peft") is True else (put(run, "use_peft", True),)


def _quantization(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if value != "4bit":
        return None
    dropped = (delete_key("load_in_8bit"),) if run.config.get("load_in_8bit") else ()
    return (put(run, "load_in_4bit", True), *dropped)


def _offloading(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    words = {"stream": True, "off": False}
    if value not in words or run.objective.generation_rows is not None:
        return None
    return (put(run, "activation_offloading", words[value], beside=("gradient_checkpointing",)),)


def _eval_batch(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    return (put(run, "per_device_eval_batch_size", value),) if run.evaluation.eval_batch_size is not None else ()


def _attention(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if run.config.get("model_init_kwargs.attn_implementation") is not None:
        return None
    return (put(run, "attn_implementation", value, beside=("dtype", "model_name_or_path")),)


def _packing(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set packing, only for supervised training with a max_length."""
    if (
        run.objective.kind != "tokens"
        or run.objective.rl
        or ("max_length" in run.config and run.config.get("max_length") is None)
    ):
        return None
    return (put(run, "packing", value, beside=("max_length",)),)


def _rank(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    return (put(run, "lora_r", value, beside=("use_peft",)),)


def _alpha(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set lora_alpha if it is a whole number."""
    return (put(run, "lora_alpha", int(value), beside=("lora_r",)),) if float(value).is_integer() else None


def _targets(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set the target modules; a list of one name would be read as a regular expression."""
    names = list(value)
    return (put(run, "lora_target_modules", names, beside=("lora_r",)),) if len(names) > 1 else None


def _linear(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set all linear layers as targets; with others, the same change names them."""
    return (put(run, "lora_target_modules", "all-linear", beside=("lora_r",)),) if value else ()


def _liger(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Switch all layer kernels on or off, which is what the one switch does."""
    if run.config.get("liger_kernel_config") is not None or (value and set(value) != _LIGER):
        return None
    return (put(run, "use_liger_kernel", bool(value)),)


def _sharding(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Use one of the accelerate files that TRL ships; they are for eight processes unless a number is given."""
    against = ("accelerate_config", "config_file", "fsdp", "deepspeed")
    taken = any(run.config.document.values.get(key) for key in against)
    if value not in SHIPPED or taken or run.target.launcher != "cli":
        return None
    beside = ("model_name_or_path",)
    return (
        put(run, "num_processes", run.batch.gpus, beside=beside),
        put(run, "accelerate_config", value, beside=beside),
    )


def _nothing(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Return no edits: the setting follows from another field of the same change."""
    return ()


def _loss(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Write Liger's loss, which supervised training has before TRL 1.15; since then there is one loss."""
    old = run.target.stack.older_than("trl", "1.15") and run.objective.kind == "tokens"
    return COMMON["loss_kernel"](run, value) if old else None


SPELLERS: dict[str, Speller] = {
    **COMMON,
    "loss_kernel": _loss,
    "liger": _liger,
    "sharding": _sharding,
    "sample_packing": _packing,
    "lora_alpha": _alpha,
    "lora_target_modules": _targets,
    "lora_target_linear": _linear,
    "eval_sequence_len": _nothing,
    "allocator": _allocator,
    "weights_dtype": _weights,
    "sequence_len": _length,
    "pad_to_sequence_len": _padded,
    "adapter": _adapter,
    "quantization": _quantization,
    "activation_offloading": _offloading,
    "attn_implementation": _attention,
    "eval_batch_size": _eval_batch,
    "lora_r": _rank,
}
