"""Changes as edits of LLaMA-Factory's files: a field of RunSpec with its new value → edits of the file."""

from __future__ import annotations

from typing import Any

from vramwise.rules.base import delete_key, set_key
from vramwise.trainers.arguments import SPELLERS as COMMON
from vramwise.trainers.arguments import WORDS as COMMON_WORDS
from vramwise.trainers.arguments.spell import key_speller, put, spell_with
from vramwise.trainers.base import Spelling
from vramwise.trainers.llamafactory.keys import since
from vramwise.trainers.llamafactory.resolve.sharding import inline_zero
from vramwise.trainers.spelling import Speller
from vramwise.types import Change, Edit, RunSpec

_ATTENTION = {"sdpa": "sdpa", "eager": "disabled", "flash_attention_2": "fa2"}
_OFF = "disable_gradient_checkpointing"
WORDS: dict[str, tuple[str, ...]] = COMMON_WORDS | {
    "checkpoint-activations": (f"{_OFF}: false",),
    "reentrant-checkpointing": ("use_reentrant_gc: true",),
    "nonreentrant-checkpointing": ("use_reentrant_gc: false",),
    "fuse-loss": ("enable_liger_kernel: true",),
    "plain-loss": ("enable_liger_kernel: false",),
    "liger-kernels": ("enable_liger_kernel: true",),
    "no-liger-kernels": ("enable_liger_kernel: false",),
    "keep-activations": (f"{_OFF}: true",),
    "offload-layer-inputs": ("use_unsloth_gc: true",),
    "train-adapter": ("finetuning_type: lora", "lora_rank: 16", "lora_alpha: 32"),
    "bf16-weights": ("pure_bf16: true", "bf16: (remove)"),
    "narrower-targets": ("lora_target: q_proj,k_proj,v_proj,o_proj",),
    "lower-rank": ("lora_rank: half of it", "lora_alpha: half of it"),
    "shorter-rows": ("cutoff_len: half of it",),
    "fused-attention": ("flash_attn: sdpa",),
    "plain-attention": ("flash_attn: sdpa",),
    "flash-attention": ("flash_attn: fa2",),
    "separate-samples": ("neat_packing: true",),
    "fill-rows": ("packing: true", "neat_packing: true"),
    "shorten-rows": ("cutoff_len: half of it",),
    "shard-with-fsdp": (
        "fsdp: full_shard auto_wrap",
        "fsdp_config:",
        "  version: 2",
        "low_cpu_mem_usage: false",
        "use_reentrant_gc: false",
    ),
    "quantize-base": ("finetuning_type: lora", "quantization_bit: 4"),
    "train-in-bf16-with-flash": ("bf16: true", "flash_attn: fa2"),
}


def spell(run: RunSpec, change: Change) -> Spelling | None:
    """Return the edits for all fields of a change, or None if one of them has no key."""
    if change.id == "separate-samples":
        edits = (put(run, "neat_packing", True, beside=("packing", "cutoff_len")),)
        return Spelling(edits=edits, title="Keep packed samples apart: neat_packing")
    return spell_with(_SPELLERS, run, change)


def _checkpointing(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set checkpointing, which is on by default; transformers' own switch turns it on too."""
    if value:
        return () if run.savings.gradient_checkpointing else (put(run, _OFF, False),)
    edits = (put(run, _OFF, True, beside=("flash_attn", "bf16")),)
    own = (delete_key("gradient_checkpointing"),) if run.config.get("gradient_checkpointing") else ()
    return (*edits, *own)


def _reentrant(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set the form of checkpointing: by kwargs if transformers turns it on, else by LLaMA-Factory's own key."""
    if run.config.get("gradient_checkpointing"):
        return COMMON["checkpointing_reentrant"](run, value)
    return (put(run, "use_reentrant_gc", value, beside=(_OFF, "bf16")),)


def _loss(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set the loss with the one switch for all of Liger's kernels; LLaMA-Factory's own losses conflict with it."""
    if value == "liger_fused_linear" and run.kernels.loss_kernel == "stock" and run.objective.kind == "tokens":
        return (put(run, "enable_liger_kernel", True, beside=("flash_attn", "bf16", "cutoff_len")),)
    if value == "stock" and run.config.get("enable_liger_kernel"):
        return (set_key("enable_liger_kernel", False),)
    return None


def _liger(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set Liger's kernels with their one switch; None if it also decides the loss."""
    if run.objective.kind == "tokens":
        return None
    return (put(run, "enable_liger_kernel", bool(value), beside=("flash_attn", "bf16", "cutoff_len")),)


def _targets(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if value is False:  # the same change names the targets
        return ()
    names = "all" if value is True else ",".join(value) if isinstance(value, tuple) else ""
    return (put(run, "lora_target", names, beside=("lora_rank", "finetuning_type")),) if names else None


def _follows(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    """Return no edits: evaluations have no length of their own."""
    return ()


def _attention(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    word = _ATTENTION.get(value)
    if word is None or (run.shapes.packing_rows == "one" and value != "flash_attention_2"):
        return None
    return (put(run, "flash_attn", word, beside=("cutoff_len", "model_name_or_path")),)


def _offloading(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set offloading; there is only one kind: inputs of checkpointed blocks in host memory."""
    if value == "off" and not run.config.get("use_unsloth_gc"):
        return ()
    if value not in ("hidden_states", "off"):
        return None
    return (put(run, "use_unsloth_gc", value != "off", beside=(_OFF, "flash_attn", "bf16")),)


def _quantization(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Quantise on the fly with bitsandbytes; None with PiSSA, new tokens or fp8."""
    against = ("pissa_init", "resize_vocab", "add_tokens", "add_special_tokens", "fp8")
    if value not in ("4bit", "8bit") or any(run.config.get(key) for key in against):
        return None
    if run.config.get("quantization_method", "bnb") != "bnb":
        return None
    bits = 4 if value == "4bit" else 8
    return (put(run, "quantization_bit", bits, beside=("model_name_or_path",)),)


def _adapter(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set the adapter; `qlora` is `lora` on a base with fewer bits."""
    if value not in ("lora", "qlora"):
        return None
    written = run.config.get("finetuning_type", "lora") == "lora"
    return () if written else (put(run, "finetuning_type", "lora", beside=("stage",)),)


def _length(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set cutoff_len, including the token that is lost if packing is set."""
    cutoff = run.config.get("cutoff_len", 2048)
    lost = cutoff - run.shapes.sequence_len
    return (put(run, "cutoff_len", value + lost, beside=("template", "dataset")),)


def _packing(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Pack with samples kept apart, which 0.9.4 refuses and flash attention supports only for one row."""
    if not value or run.objective.kind != "tokens":
        return None
    apart = since(run.target.stack, 0, 9, 5) and run.config.get("stage", "sft") == "sft"
    if (
        apart
        and "flash" in run.kernels.attn_implementation
        and max(run.batch.micro_batch_size, run.evaluation.eval_batch_size or 1) > 1
    ):
        return None
    edits = (put(run, "packing", True, beside=("cutoff_len", "template")),)
    return (*edits, put(run, "neat_packing", True, beside=("packing", "cutoff_len"))) if apart else edits


def _fsdp(run: RunSpec) -> tuple[Edit, ...] | None:
    """Use FSDP 2 through transformers' own keys, which torchrun's processes pass to accelerate.

    FSDP is not known yet when the model is loaded, so the model must stay off the card, and LLaMA-Factory does not
    choose the matching form of checkpointing.
    """
    against = ("use_galore", "use_apollo", "use_badam", "use_unsloth", "use_kt", "quantization_bit", "pissa_init")
    if any(run.config.get(key) for key in (*against, "fsdp", "deepspeed")) or run.target.launcher == "module":
        return None
    was = run.savings.recompute and run.savings.checkpointing_reentrant
    reentrant = (_reentrant(run, False) or ()) if was else ()
    return (
        put(run, "fsdp_config", {"version": 2, "reshard_after_forward": True}, beside=("finetuning_type", "stage")),
        put(run, "fsdp", "full_shard auto_wrap", beside=("finetuning_type", "stage")),
        put(run, "low_cpu_mem_usage", False, beside=("model_name_or_path",)),
        *reentrant,
    )


def _sharding(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Write sharding into the file; None if another key conflicts with it."""
    if value == "fsdp2":
        return _fsdp(run)
    against = ["use_galore", "use_apollo", "fsdp", "deepspeed"]
    against += ["pure_bf16", "pissa_init", "use_unsloth", "use_badam"] if value == "zero3" else ["use_badam"]
    if value not in ("zero1", "zero2", "zero3") or any(run.config.get(key) for key in against):
        return None
    return (put(run, "deepspeed", inline_zero(int(value[-1])), beside=("finetuning_type", "stage")),)


def _switches(field: str) -> Speller:
    """Return a speller for bf16 and fp16 that also removes LLaMA-Factory's own `pure_bf16`."""

    def speller(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
        edits = COMMON[field](run, value)
        if edits is None or not run.config.get("pure_bf16"):
            return edits
        kept = tuple(edit for edit in edits if edit.op != "insert" or edit.value)
        return (*kept, delete_key("pure_bf16"))

    return speller


def _in_fp32(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Train in bf16 alone: pure_bf16 takes the place of bf16; nothing casts back to fp32 without being asked."""
    if value:
        return None
    dropped = (delete_key("bf16"),) if "bf16" in run.config else ()
    return (put(run, "pure_bf16", True, beside=("bf16",)), *dropped)


def _optimizer(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set `optim`; None if GaLore, APOLLO, BAdam, Adam-mini or Muon is switched on, which override it."""
    own = ("use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon")
    if any(run.config.get(key) for key in own):
        return None
    return COMMON["optimizer"](run, value)


_SPELLERS: dict[str, Speller] = COMMON | {
    "gradient_checkpointing": _checkpointing,
    "precision": _switches("precision"),
    "precision_by_card": _switches("precision_by_card"),
    "checkpointing_reentrant": _reentrant,
    "loss_kernel": _loss,
    "attn_implementation": _attention,
    "activation_offloading": _offloading,
    "quantization": _quantization,
    "adapter": _adapter,
    "sequence_len": _length,
    "optimizer": _optimizer,
    "lora_r": key_speller("lora_rank"),
    "lora_alpha": key_speller("lora_alpha"),
    "lora_target_linear": _targets,
    "lora_target_modules": _targets,
    "eval_sequence_len": _follows,
    "liger": _liger,
    "sharding": _sharding,
    "trains_in_fp32": _in_fp32,
    "sample_packing": _packing,
}
