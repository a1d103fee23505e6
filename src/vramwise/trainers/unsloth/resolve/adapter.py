"""Resolves LoRA as `get_peft_model` creates it: in fp32, with embeddings and head trained as full copies."""

from __future__ import annotations

from vramwise.trainers.arguments import Arguments, resolve_adapter
from vramwise.trainers.unsloth.keys import since
from vramwise.types import Target

# As targets, these are moved to modules_to_save.
_WHOLE = ("embed_tokens", "lm_head")


def resolve_method(args: Arguments, target: Target) -> None:
    """Fill the adapter and its settings. Needs the dtype of the weights."""
    resolve_adapter(args)
    if args.values["adapter"] is not None:
        name = "qlora" if bits_of(args) == "4bit" else "lora"
        args.derive("adapter", name, "get_peft_model", key="load_in_4bit")
        _trained_whole(args)
        _tied(args, target)
    args.derive("half_adapters", False, "adapters stay in fp32")
    args.derive("adapters_as_base", False, "PEFT makes them fp32")
    args.derive("embeddings_want_grads", args.values["adapter"] is not None, "Unsloth asks for it, checkpointed or not")


def bits_of(args: Arguments) -> str | None:
    """Return how the base is quantised: full fine-tuning turns it off, a written width overrides the default 4 bits."""
    if args.value("full_finetuning"):
        return None
    if args.value("load_in_8bit"):
        return "8bit"
    if args.value("load_in_16bit") or not args.value("load_in_4bit"):
        return None
    return "4bit"


def _tied(args: Arguments, target: Target) -> None:
    """Fill saved_pair_tied: since 2026.8.20, embeddings and a tied head share one copy.

    `ensure_weight_tying=False` turns that off.
    """
    key = "ensure_weight_tying"
    asked = args.value(key)
    tied = since(target.stack, 2026, 8, 20) if asked is None else bool(asked)
    why = "embeddings and a tied head share one trained copy" if tied else "each is a trained copy of its own"
    args.derive("saved_pair_tied", tied, why, key=key)


def _trained_whole(args: Arguments) -> None:
    targets = args.values["lora_target_modules"]
    moved = tuple(name for name in targets if name in _WHOLE)
    if not moved:
        return
    saved = args.values["lora_modules_to_save"]
    why = f"{' and '.join(moved)}: LoRA on embeddings is not trained, Unsloth trains whole copies"
    rest = tuple(name for name in targets if name not in _WHOLE)
    args.derive("lora_target_modules", rest, why, key="lora_target_modules")
    both = tuple(dict.fromkeys((*saved, *moved)))
    args.derive("lora_modules_to_save", both, why, key="lora_target_modules")
