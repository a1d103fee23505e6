"""Resolves LoRA as PEFT gets it, and the dtype of weights that a script loads itself."""

from __future__ import annotations

from typing import Any

from vramwise.models.lora_targets import ALL_LINEAR, BY_MODEL
from vramwise.trainers.arguments.values import Arguments
from vramwise.types import Target

# Before this version, PEFT created adapters in the dtype of their base (`_cast_adapter_dtype` of 0.12.0).
PEFT_WIDENS = "0.12"


def resolve_adapter(args: Arguments) -> None:
    """Fill the adapter and its settings, from `use_peft` and the LoRA keys."""
    if not args.value("use_peft"):
        args.derive("adapter", None, "use_peft is off: every weight is trained", key="use_peft")
    else:
        name = "qlora" if args.value("load_in_4bit") else "lora"
        args.derive("adapter", name, "use_peft", key="use_peft")
    on = args.values["adapter"] is not None
    if on and _is_open(args, "lora_r"):
        args.assume("lora_r", args.count("lora_r"), f"{_SAVED}: rank {args.count('lora_r')} is assumed")
    elif on:
        args.take_count("lora_r", "lora_r")
    else:
        args.derive("lora_r", None, "no adapter", key="lora_r")
    alpha = args.value("lora_alpha")
    args.put("lora_alpha", "lora_alpha", float(alpha) if on and isinstance(alpha, int | float) else None)
    rate = args.value("lora_dropout")
    args.put("lora_dropout", "lora_dropout", float(rate) if on and isinstance(rate, int | float) else 0.0)
    _targets(args, on)
    for name in ("use_dora", "use_rslora"):
        args.put(name, name, on and bool(args.value(name)))
    saved = args.value("lora_modules_to_save") if on else None
    args.put("lora_modules_to_save", "lora_modules_to_save", _names(saved))
    args.derive("embeddings_want_grads", False, "only if blocks are checkpointed")


def _targets(args: Arguments, on: bool) -> None:
    """Fill the target modules. A list of one name is passed to PEFT as text, which is a regular expression."""
    written = _names(args.value("lora_target_modules")) if on else ()
    linear = written == (ALL_LINEAR,)
    args.put("lora_target_linear", "lora_target_modules", linear)
    if on and not written and _is_open(args, "lora_target_modules"):
        args.assume("lora_target_modules", (BY_MODEL,), f"{_SAVED}: PEFT's default for the model type is assumed")
    elif on and not written:
        why = "unset: PEFT's default for the model type, usually q_proj and v_proj"
        args.put("lora_target_modules", "lora_target_modules", (BY_MODEL,), why=why)
    else:
        args.put("lora_target_modules", "lora_target_modules", written)
    bare = _names(args.value("lora_target_parameters")) if on else ()
    args.put("lora_target_parameters", "lora_target_parameters", bare)


_SAVED = "unknown, as the script does not say it"


def _is_open(args: Arguments, key: str) -> bool:
    """Return whether a script may set a key to something that is not known."""
    script = args.fields.config.document.script
    return script is not None and script.leaves_open(key)


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def loads_by_itself(args: Arguments) -> bool:
    """Return whether a script loads the model itself without a dtype."""
    script = args.fields.config.document.script
    return script is not None and "no dtype" in script.facts


def resolve_loaded_type(args: Arguments, target: Target) -> None:
    """Fill the dtype that `from_pretrained` uses without a dtype: the checkpoint's since transformers 5."""
    args.fields.keys["weights_dtype"] = "dtype"
    if resolve_unsaid_type(args, target):
        return
    args.fields.assume("weights_dtype", "bf16", "no dtype is passed: the checkpoint's type, assumed to be bf16")
    args.derive("fp32_embeddings", False, "all weights are of one type")


def resolve_unsaid_type(args: Arguments, target: Target) -> bool:
    """Fill the dtype that transformers 4 uses where none is passed; return whether it is transformers 4.

    On a quantised base what is not quantised is fp16 (quantizer_bnb_4bit.py of 4.57.6, modeling_utils.py of 4.31.0).
    """
    if not () < target.stack.parts("transformers") < (5,):
        return False
    quantised = any(args.fields.config.get(f"load_in_{bits}") for bits in ("4bit", "8bit"))
    name, why = ("fp16", "on a quantised base in fp16") if quantised else ("fp32", "in fp32")
    args.derive("weights_dtype", name, f"no dtype is passed: transformers 4 loads {why}", key="dtype")
    args.derive("fp32_embeddings", not quantised, "all weights are of one type")
    return True
