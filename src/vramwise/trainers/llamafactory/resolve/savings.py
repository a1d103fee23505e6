"""How memory is saved: checkpointing (on unless it is switched off), attention, Liger, the loss."""

from __future__ import annotations

from vramwise.trainers.arguments import Arguments, resolve_savers
from vramwise.trainers.arguments.resolve.checkpointing import KWARGS, checkpointing_kwargs

ATTENTION = {"disabled": "eager", "sdpa": "sdpa", "fa2": "flash_attention_2", "fa3": "flash_attention_3"}
LIGER = ("rope", "rms_norm", "glu_activation")
# Stages whose loss is that of the model itself, so that no logits are needed.
ON_TOKENS = ("pt", "sft")


def resolve_memory_savers(args: Arguments) -> None:
    """Fills checkpointing, offloading, Liger and compilation. Needs sharding."""
    resolve_savers(args)
    liger = bool(args.value("enable_liger_kernel"))
    why = "enable_liger_kernel replaces classes before the model is built" if liger else "enable_liger_kernel is off"
    if liger or not args.values["liger"]:
        args.derive("liger", LIGER if liger else (), why, key="enable_liger_kernel")
        args.derive("liger_before_build", liger, why)
    _checkpointing(args)
    offload = bool(args.value("use_unsloth_gc")) and args.values["recompute"]
    why = "use_unsloth_gc: block inputs are kept in host memory" if offload else "nothing is offloaded"
    args.derive("activation_offloading", "hidden_states" if offload else "off", why, key="use_unsloth_gc")
    args.derive("embeddings_want_grads", False, "only if blocks are checkpointed")


def _checkpointing(args: Arguments) -> None:
    """LLaMA-Factory's own switch is on unless it is disabled; transformers' turns it on all the same."""
    off, asked = bool(args.value("disable_gradient_checkpointing")), bool(args.value("gradient_checkpointing"))
    on = asked or not off
    key = "gradient_checkpointing" if asked and off else "disable_gradient_checkpointing"
    if asked and off:
        why = "gradient_checkpointing turns on what disable_gradient_checkpointing left off"
        args.derive("gradient_checkpointing", True, why, key=key)
    else:
        args.put("gradient_checkpointing", key, on, why="on unless disable_gradient_checkpointing")
    if "recompute" in args.values:
        return  # FSDP's own, which sharding has settled
    args.derive("recompute", on, "checkpointing is on" if on else "disable_gradient_checkpointing", key=key)
    _form(args, off, asked)


def _form(args: Arguments, off: bool, asked: bool) -> None:
    """Reentrant unless it is said: by use_reentrant_gc, or, where transformers turns it on (again), by its kwargs."""
    name, own = "checkpointing_reentrant", "use_reentrant_gc"
    written = checkpointing_kwargs(args).get("use_reentrant")
    if asked and isinstance(written, bool):
        args.derive(name, written, f"{KWARGS} is passed on when training starts", key=KWARGS)
    elif asked:
        why = "transformers' default" if off else "gradient_checkpointing turns it on again, as reentrant"
        args.derive(name, not off, why, key="gradient_checkpointing")
    elif args.values["sharding"] == "fsdp2" and "train_sampling_strategy" not in args.words:
        args.derive(name, False, "LLaMA-Factory's choice under FSDP 2, as reported by transformers 4", key=own)
    elif own not in args.words:  # LLaMA-Factory before 0.9.2 (model_utils/checkpointing.py of 0.7.1 to 0.9.1)
        args.derive(name, True, "LLaMA-Factory before 0.9.2 always passes use_reentrant", key="gradient_checkpointing")
    else:
        args.put(name, own, bool(args.value(own)))


def resolve_attention(args: Arguments) -> None:
    """Fills attn_implementation."""
    written = args.value("flash_attn")
    name, key = "attn_implementation", "flash_attn"
    if written in ATTENTION:
        args.put(name, key, ATTENTION[written])
    else:
        args.derive(name, "sdpa", "auto: transformers picks sdpa", key=key)


_OWN_LOSSES = (("use_dft_loss", "dft_whole"), ("use_eaft_loss", "eaft_whole"), ("use_asft_loss", "dft_whole"))


def resolve_loss(args: Arguments) -> None:
    """Fills loss_kernel and head_in_fp32. Needs Liger and the stage."""
    args.take("head_in_fp32", "upcast_lmhead_output")
    stage, liger = args.value("stage"), bool(args.value("enable_liger_kernel"))
    for key, kernel in _OWN_LOSSES:
        if args.value(key) and stage == "sft":
            args.derive("loss_kernel", kernel, f"{key}: the trainer's own loss of the logits", key=key)
            return
    key = "enable_liger_kernel"
    if liger and stage in ON_TOKENS:
        args.derive("loss_kernel", "liger_fused_linear", "enable_liger_kernel: Liger's fused linear loss", key=key)
    elif liger:
        args.derive("loss_kernel", "liger", f"stage {stage} needs logits: Liger's plain cross entropy", key=key)
    else:
        args.derive("loss_kernel", "stock", "no loss kernel is in use: full logits in fp32", key=key)
