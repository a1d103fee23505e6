"""Resolves a Document to a RunSpec for transformers' plain Trainer.

The script decides the model, its dtype and its rows: the names that run_clm.py and similar scripts use are read, and
missing values are assumed and reported.
"""

from __future__ import annotations

from vramwise.trainers.arguments import (
    Arguments,
    arguments_config,
    resolve_absent,
    resolve_adapter,
    resolve_batch,
    resolve_checkpointing,
    resolve_eval,
    resolve_optimizer,
    resolve_precision,
    resolve_savers,
    resolve_sharding,
    resolve_unsaid_type,
    resolved,
    training_arguments,
)
from vramwise.trainers.arguments.resolve.accelerate import launched
from vramwise.trainers.arguments.resolve.adapter import PEFT_WIDENS
from vramwise.trainers.arguments.resolve.checkpointing import unfollowed_checkpointing
from vramwise.trainers.arguments.resolve.savings import liger_loss
from vramwise.trainers.base import SideFiles
from vramwise.trainers.fields import Fields
from vramwise.trainers.installed import default_attention, resolve_quantised_way, resolve_storage, unfollowed_experts
from vramwise.types import Document, RunSpec, Target

_TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_LENGTHS = ("block_size", "max_seq_length", "max_length", "model_max_length", "max_source_length")
_LENGTH = 1024
# What only a script sets, and a command that stands for one.
_LOADING = frozenset({"use_peft", "load_in_4bit", "load_in_8bit"})


def resolve_arguments(document: Document, target: Target, files: SideFiles) -> RunSpec:
    """Return the run of a file or script of TrainingArguments."""
    words = training_arguments(target.stack).unconverted()
    config = arguments_config(document, words)
    args = Arguments(Fields(config, "transformers"), words)
    named = args.fields.take("base_model", None, key="model_name_or_path")
    args.values["base_model"] = named if isinstance(named, str) else None
    resolve_sharding(args, target, files)
    resolve_batch(args)
    resolve_precision(args, accelerate=launched(target.accelerate, files).mixed_precision)
    modern = target.stack.parts("transformers") >= (5,)
    resolve_checkpointing(args, reentrant=not modern, why=f"transformers {'5' if modern else '4'}'s default")
    resolve_optimizer(args)
    resolve_savers(args)
    # the script decides packing and preferences; what it trains is known if the script itself is read
    _head(args)
    args.fields.neutral_section("objective")
    if document.script is None and not _LOADING & document.values.keys():
        args.fields.neutral_section("adapter")
        args.fields.neutral("quantization", "nested_scales", "int8_outliers", "quantised_base_prepared")
    else:
        _adapter(args, target)
    args.fields.neutral("activation_offloading", why="the plain Trainer has none")
    _weights(args, target, modern)
    _shapes(args)
    _loss(args)
    resolve_eval(args)
    unfollowed = (*unfollowed_checkpointing(args), *unfollowed_experts(args.values, target.stack))
    args.derive("unfollowed", unfollowed, "unsupported checkpointing options, and experts of transformers 4")
    resolve_absent(args, target)
    title = "transformers' Trainer"
    added = document.script.variables if document.script is not None else {}
    whose = "the script's own os.environ" if added else title
    return resolved(args.fields, target, trainer="hf-trainer", title=title, added=added, whose=whose)


_OTHER_ADAPTER_SETTINGS = (
    *(
        "linear_targets_by_name",
        "lora_kernels",
        "fused_lora",
        "fused_lora_wide_grads",
        "fused_lora_in_place",
        "fused_lora_squared",
        "fused_lora_traced",
        "saved_pair_tied",
        "half_adapters",
        "adapters_as_base",
        "unfrozen",
    ),
    *("trained_blocks", "added_tokens"),
)


def _adapter(args: Arguments, target: Target) -> None:
    """Fill what a script passes to PEFT and bitsandbytes itself."""
    script = args.fields.config.document.script
    resolve_adapter(args)
    args.fields.neutral(*_OTHER_ADAPTER_SETTINGS, why="PEFT adapters, in fp32 on a 16-bit base")
    bits = next((bits for bits in ("4bit", "8bit") if args.fields.config.get(f"load_in_{bits}")), None)
    key = f"load_in_{bits}" if bits else "load_in_4bit"
    args.derive("quantization", bits, f"{key} is on" if bits else "the base is not quantised", key=key)
    if bits is None and target.stack.older_than("peft", PEFT_WIDENS):
        args.derive("adapters_as_base", True, "PEFT before 0.12 creates adapters in the dtype of their base")
    resolve_storage(args, args.fields.config.get("bnb_4bit_quant_storage"))
    nested = bool(args.fields.config.get("use_bnb_nested_quant"))
    args.derive("nested_scales", nested if bits == "4bit" else True, "bnb_4bit_use_double_quant")
    args.derive("int8_outliers", bits == "8bit", "LLM.int8 handles values of 6 and above separately")
    prepared = script is not None and "prepared" in script.facts
    why = "prepare_model_for_kbit_training casts unquantised weights to fp32" if prepared else "not prepared by PEFT"
    args.derive("quantised_base_prepared", "all" if prepared and bits else "no", why)
    args.derive("upcasts_stay", prepared, "the plain Trainer casts nothing back" if prepared else why)


def _head(args: Arguments) -> None:
    """Fill the objective of a script whose model has a head for classes, and the length of what a decoder writes."""
    script = args.fields.config.document.script
    facts = {} if script is None else script.facts
    for head in ("classes", "token_classes"):
        if head in facts:
            args.derive("objective", head, f"the model's class has a head for classes (line {facts[head]})")
            args.derive("class_labels", facts.get("class labels", 2), "num_labels")
    if "target length" in facts:
        args.derive("target_len", facts["target length"], "the shorter of the lengths that the script cuts texts to")


def _weights(args: Arguments, target: Target, modern: bool) -> None:
    written = [key for key in ("dtype", "torch_dtype") if args.fields.config.get(key) in _TYPES]
    if written:
        name = args.fields.config.get(written[0])
        args.derive("weights_dtype", _TYPES[name], f"{written[0]} is {name}", key=written[0])
    elif args.fields.config.document.script is not None and resolve_unsaid_type(args, target):
        pass
    elif modern:
        args.fields.assume("weights_dtype", "bf16", "transformers 5 uses the checkpoint's type: bf16 assumed")
    else:
        args.fields.assume("weights_dtype", "fp32", "transformers 4 loads in fp32 unless the script sets a type")
    wide = args.values["weights_dtype"] == "fp32"
    args.derive("fp32_embeddings", wide, "all weights are of one type")
    _loading(args, target)
    attention = args.fields.config.get("attn_implementation")
    name = attention if isinstance(attention, str) else default_attention(target.stack)[0]
    args.derive(
        "attn_implementation", name, "chosen by transformers unless the script sets it", key="attn_implementation"
    )


def _loading(args: Arguments, target: Target) -> None:
    """Fill how weights are loaded: bitsandbytes quantises on the card; a device map loads weights onto it."""
    script = args.fields.config.document.script
    if args.values["quantization"] is not None:
        resolve_quantised_way(args, target.stack)
    elif script is not None and "device_map" in script.facts:
        args.derive("loads_through", "device", "device_map: weights are loaded directly onto the card")
    else:
        args.derive("loads_through", "host", "loaded into host memory and moved by the Trainer")


def _shapes(args: Arguments) -> None:
    config = args.fields.config
    key = next((key for key in _LENGTHS if isinstance(config.get(key), int) and config.get(key) > 0), None)
    if key is None:
        args.fields.assume("sequence_len", _LENGTH, f"no key sets the row length: {_LENGTH} assumed")
    else:
        args.derive("sequence_len", config.get(key), f"{key} is {config.get(key)}", key=key)
    args.fields.neutral("samples_apart", "long_rows")
    multiple = config.document.script.facts.get("pad multiple", 1) if config.document.script is not None else 1
    why = "not rounded" if multiple == 1 else "pad_to_multiple_of of the script's collator"
    args.derive("pad_multiple", multiple, why)
    args.fields.neutral("sample_packing", "packing_rows")
    args.derive("can_pad", False, "the script decides how rows are padded")
    script = config.document.script
    padded = script is not None and "padded rows" in script.facts
    args.derive("pad_to_sequence_len", padded, "the tokenizer pads every row" if padded else "no row is padded to it")
    blocks = key == "block_size"
    why = "texts are joined and cut into blocks" if blocks else "widths follow the data"
    args.derive("constant_shapes", blocks or padded, "rows are padded to max_length" if padded else why, key=key)


def _loss(args: Arguments) -> None:
    if args.value("label_smoothing_factor"):
        args.derive("loss_kernel", "stock", "label smoothing needs the logits", key="label_smoothing_factor")
    elif liger_loss(args):
        args.derive("loss_kernel", "liger_fused_linear", "use_liger_kernel", key="use_liger_kernel")
    else:
        args.derive("loss_kernel", "stock", "no loss kernel is in use: full logits in fp32")
