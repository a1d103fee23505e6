"""What is trained: adapters, some blocks or everything; on which base; with which optimizer."""

from __future__ import annotations

import re
from typing import Any

from vramwise.trainers.arguments import Arguments, resolve_optimizer
from vramwise.types import TrainedBlocks

_STORED = re.compile(r"(?:^|[-_/.])(gptq|awq|aqlm)(?:[-_/.]|$)", re.IGNORECASE)
# Flags that put another optimizer in place of `optim`'s, in the order in which LLaMA-Factory looks at them.
OWN_OPTIMIZERS = {
    "use_galore": "galore_adamw",
    "use_apollo": "apollo_adamw",
    "use_badam": "badam",
    "use_adam_mini": "adam_mini",
    "use_muon": "muon",
}
_USUAL_BLOCK = 32  # of OFT
# Every parameter but those of towers and what joins them to the text model.
_TEXT_ALONE = r"(?!.*(visual|vision|audio|projector|resampler|connector|vpm|apm)).*"
# Who quantises while the model loads; under any other method quantization_bit does nothing.
ON_THE_FLY = ("bnb", "hqq", "eetq")


def resolve_method(args: Arguments, *, media: bool = False) -> None:
    """Fills adapter, lora_*, quantization…, optimizer, max_grad_norm. `media`: the template brings images or sound."""
    _quantization(args)
    _adapter(args)
    _targets(args)
    args.take("use_dora", "use_dora")
    args.take("use_rslora", "use_rslora")
    _added_tokens(args)
    _blocks(args)
    _towers(args, media)
    resolve_optimizer(args)
    key = next((key for key in OWN_OPTIMIZERS if args.value(key)), None)
    if key is not None:
        args.derive("optimizer", _own_optimizer(args, key), f"{key} is on", key=key)


def _own_optimizer(args: Arguments, key: str) -> str:
    """Its name, with the rank of those that project."""
    name, rank = OWN_OPTIMIZERS[key], args.value(f"{key.removeprefix('use_')}_rank")
    if block_by_block(args):
        return f"{name} {args.values['optimizer']}"
    return f"{name} rank {rank}" if projects(args, key) and isinstance(rank, int) else name


def projects(args: Arguments, key: str) -> bool:
    """Whether this is GaLore or APOLLO on AdamW: others of theirs keep other states."""
    return key in ("use_galore", "use_apollo") and args.value("optim") == "adamw_torch"


def block_by_block(args: Arguments) -> bool:
    """Whether BAdam trains one block after the other, and not a share of each weight."""
    return bool(args.value("use_badam")) and args.value("badam_mode") != "ratio"


def names(value: Any) -> tuple[str, ...]:
    """Texts with commas, or a list."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else ()
    return tuple(str(part).strip() for part in parts)


def _adapter(args: Arguments) -> None:
    kind = args.value("finetuning_type")
    key = "finetuning_type"
    if kind not in ("lora", "oft"):
        args.derive("adapter", None, f"finetuning_type {kind}", key=key)
        for name in ("lora_r", "lora_alpha"):
            args.derive(name, None, "no adapter", key="lora_rank" if name == "lora_r" else name)
        args.derive("lora_dropout", 0.0, "no adapter")
        return
    if kind == "oft":
        args.derive("adapter", "oft", "finetuning_type oft", key=key)
        block = args.value("oft_block_size")
        block = block if isinstance(block, int) and block > 1 and not args.value("oft_rank") else _USUAL_BLOCK
        args.derive("lora_r", block, "columns of a block: OFT rotates blocks and has no rank", key="oft_block_size")
        args.derive("lora_alpha", 1.0, "OFT has no scaling")
        args.take("lora_dropout", "module_dropout")
        return
    four = args.values["quantization"] == "4bit"
    args.derive("adapter", "qlora" if four else "lora", f"finetuning_type lora{' on 4 bits' if four else ''}", key=key)
    rank = args.take_count("lora_r", "lora_rank")
    if args.value("adapter_name_or_path") and not args.value("create_new_adapter"):
        args.fields.assume("lora_r", rank, "the rank of the adapter in adapter_name_or_path is not read: lora_rank")
    alpha = args.value("lora_alpha")
    if alpha:
        args.take("lora_alpha", "lora_alpha")
    else:
        args.derive("lora_alpha", 2 * rank, "unset: twice lora_rank", key="lora_rank")
    args.take("lora_dropout", "lora_dropout")


def _targets(args: Arguments) -> None:
    key = "oft_target" if args.values["adapter"] == "oft" else "lora_target"
    wanted = names(args.value(key))
    everything = wanted == ("all",)
    args.put("lora_target_linear", key, everything and args.values["adapter"] is not None)
    args.put("lora_target_modules", key, () if everything or args.values["adapter"] is None else wanted)
    why = "LLaMA-Factory passes the names of all linear modules to PEFT"
    args.derive("linear_targets_by_name", True, why, key=key)
    saved = names(args.value("additional_target")) if args.values["adapter"] is not None else ()
    if args.values["adapter"] is not None and not saved and _resizes(args):
        why = "resize_vocab without additional_target: embeddings and head are fully trained"
        args.derive("lora_modules_to_save", ("embed_tokens", "lm_head"), why, key="resize_vocab")
    else:
        args.put("lora_modules_to_save", "additional_target", saved)


def _resizes(args: Arguments) -> bool:
    return bool(args.value("resize_vocab") or args.value("add_tokens") or args.value("add_special_tokens"))


def _blocks(args: Arguments) -> None:
    """`freeze`: the last or first so many blocks, or with LLaMA Pro the last of every so many; BAdam: one by one."""
    if block_by_block(args) and args.value("finetuning_type") == "full":
        why = "BAdam trains one block at a time; the first is counted, whose gradient passes all others"
        args.derive("trained_blocks", TrainedBlocks(count=-1), why, key="use_badam")
        return
    if args.value("finetuning_type") != "freeze":
        args.derive("trained_blocks", None, "no block is left out", key="freeze_trainable_layers")
        return
    inside = names(args.value("freeze_trainable_modules"))
    count = args.value("freeze_trainable_layers")
    found = TrainedBlocks(
        count=count if isinstance(count, int) else 2,
        spread=bool(args.value("use_llama_pro")),
        modules=() if "all" in inside else inside,
        others=names(args.value("freeze_extra_modules")),
    )
    where = "spread over the model" if found.spread else "at the end" if found.count > 0 else "at the beginning"
    args.derive("trained_blocks", found, f"{abs(found.count)} blocks {where}", key="freeze_trainable_layers")


def _towers(args: Arguments, media: bool) -> None:
    """A full fine-tune of a multimodal model leaves its towers and projectors frozen unless told otherwise."""
    name, kept = "unfrozen", ("freeze_vision_tower", "freeze_multi_modal_projector")
    if not media or args.value("finetuning_type") != "full" or not all(args.value(key) for key in kept):
        args.derive(name, (), "nothing is left out by name", key="freeze_vision_tower")
    else:
        args.derive(name, (_TEXT_ALONE,), "towers and projectors stay frozen", key="freeze_vision_tower")


def _added_tokens(args: Arguments) -> None:
    added = (*names(args.value("add_tokens")), *names(args.value("add_special_tokens")))
    args.derive("added_tokens", len(added), f"{len(added)} in the file", key="add_tokens")


def _quantization(args: Arguments) -> None:
    """On the fly, or as the checkpoint is stored: then `quantization_bit` has no effect."""
    bits = args.value("quantization_bit")
    method = args.value("quantization_method") if "quantization_method" in args.words else "bnb"  # before it was a key
    stored = _STORED.search(args.text("model_name_or_path") or "")
    name, key = "quantization", "quantization_bit"
    if stored:
        args.fields.assume(name, "gptq", f"the model's name contains {stored[1].upper()}: stored quantised")
        args.fields.keys[name] = key
    elif bits is None:
        args.derive(name, None, "the base is not quantised", key=key)
    elif method not in ON_THE_FLY:
        args.derive(name, None, f"quantization_method {method} quantises nothing on the fly", key=key)
    elif method == "bnb":
        args.derive(name, "8bit" if bits == 8 else "4bit", f"bitsandbytes, {bits} bits", key=key)
    else:
        close = "8bit" if isinstance(bits, int) and bits > 4 else "4bit"
        args.derive(name, close, f"{method} in {bits} bits, counted like bitsandbytes", key=key)
    args.take("nested_scales", "double_quantization")
    args.derive("half_adapters", False, "trained weights stay in fp32")
    args.derive("adapters_as_base", False, "PEFT makes them fp32")
    eight = args.values[name] == "8bit" and method == "bnb"
    why = "LLM.int8 handles values of 6 and above separately" if eight else "no 8-bit weights of bitsandbytes"
    args.derive("int8_outliers", eight, why, key=key)
