"""What is trained, and by what: adapter, quantisation, optimizer, attention, loss kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vramwise.trainers.axolotl.resolve.kernels import LEGACY_FLAGS
from vramwise.trainers.axolotl.resolve.lora_kernels import KERNELS
from vramwise.trainers.axolotl.schema import Schema, schema_in
from vramwise.trainers.fields import Fields
from vramwise.trainers.installed import resolve_installed
from vramwise.types import Config, Target

# What PEFT's LoraConfig takes where nobody says a rank or an alpha.
PEFT_RANK = PEFT_ALPHA = 8
_LORA = ("lora", "qlora")
_LIGER = ("rope", "rms_norm", "layer_norm", "glu_activation", "swiglu", "rms_norm_gated")


def resolve_method(fields: Fields, target: Target) -> None:
    """Fills the adapter, quantisation, optimizer, attention and loss fields."""
    adapter = fields.take("adapter", None)
    _rank(fields, adapter)
    fields.take("lora_dropout", 0.0)
    fields.take("lora_target_linear", False)
    fields.derive("linear_targets_by_name", True, "Axolotl looks for linear modules and gives PEFT their names")
    for name in ("lora_target_modules", "lora_target_parameters", "lora_modules_to_save"):
        _names(fields, name)
    fields.take("use_dora", False, key="peft_use_dora")
    fields.take("use_rslora", False, key="peft_use_rslora")
    _quantization(fields, adapter)
    tokens = added_tokens(fields.config)
    fields.derive("added_tokens", len(tokens), f"{len(tokens)} in the file", key="tokens")
    _unfrozen(fields)
    fields.take("rl", None)
    fields.take("optimizer", schema_in(target.stack).defaults()["optimizer"])
    fields.take("max_grad_norm", 1.0, why="transformers' default")
    _attention(fields)
    resolve_installed(fields, target.stack)
    _loss(fields, schema_in(target.stack))
    _lora_kernels(fields, target)


def _unfrozen(fields: Fields) -> None:
    """Names to train as regular expressions: a dot means itself, a range of rows at the end trains the whole."""
    key = "unfrozen_parameters"
    written = fields.config.get(key, ())
    names = [written] if isinstance(written, str) else [str(item) for item in written]
    patterns = [re.sub(r"\.(?!\+)", r"\\.", re.sub(r"(?<=.)\[[0-9]*(:[0-9]*)?\]$", "", name)) for name in names]
    fields.derive("unfrozen", tuple(patterns), "what it names is trained" if names else "nothing is named", key=key)


def added_tokens(config: Config) -> list[str]:
    """Tokens that the config adds to the vocabulary. Changed special tokens may be known to the tokenizer already."""
    added = config.get("tokens", ())
    special = config.get("special_tokens.additional_special_tokens", ())
    return [str(token) for tokens in (added, special) if isinstance(tokens, list) for token in tokens]


def _rank(fields: Fields, adapter: str | None) -> None:
    """Fills lora_r and lora_alpha. Axolotl hands null on and PEFT stops; its own defaults let a prediction go on."""
    rank = fields.take("lora_r", None)
    alpha = fields.take("lora_alpha", None)
    if adapter is None:
        return
    if adapter not in _LORA:
        why = f"adapter {adapter} is counted as LoRA"
        fields.assume("lora_r", rank if rank and rank > 0 else PEFT_RANK, why)
    elif not rank or rank < 1:
        found = "lora_r is not set" if rank is None else f"lora_r {rank} is no rank"
        if fields.config.get("lora_model_dir"):
            found = "the rank of the adapter in lora_model_dir is not read"
        fields.assume("lora_r", PEFT_RANK, f"{found}: counted with PEFT's own default, {PEFT_RANK}")
    if alpha is None:
        fields.assume("lora_alpha", PEFT_ALPHA, "lora_alpha is not set: PEFT's own default")


def _names(fields: Fields, name: str) -> None:
    written = fields.take(name, ())
    names = (written,) if isinstance(written, str) else tuple(str(item) for item in written)
    fields.values[name] = names


def _adapters_as_base(fields: Fields) -> None:
    config, key = fields.config, "peft_autocast_adapter_dtype"
    if config.get(key) is False:
        fields.derive("adapters_as_base", True, f"{key} is off", key=key)
    elif config.get("rl") is not None and fields.values["sharding"].startswith("fsdp"):
        fields.derive("adapters_as_base", True, "Axolotl casts the model of an RL run under FSDP to one type")
    else:
        fields.derive("adapters_as_base", False, "PEFT makes them fp32")


def _quantization(fields: Fields, adapter: str | None) -> None:
    config = fields.config
    if config.get("gptq"):
        fields.derive("quantization", "gptq", "gptq checkpoint", key="gptq")
    elif adapter == "qlora" and config.get("load_in_4bit"):
        fields.derive("quantization", "4bit", "nf4 with double quantisation", key="load_in_4bit")
    elif adapter and config.get("load_in_8bit"):
        fields.derive("quantization", "8bit", "load_in_8bit", key="load_in_8bit")
    else:
        fields.derive("quantization", None, "the base is not quantised")
    fields.derive("nested_scales", True, "double quantisation is on")
    fields.derive("half_adapters", False, "adapters stay in fp32")
    _adapters_as_base(fields)
    eight = fields.values["quantization"] == "8bit"
    why = "LLM.int8 sets values of 6 and more apart" if eight else "no 8-bit weights"
    fields.derive("int8_outliers", eight, why, key="load_in_8bit")
    key, linear = "quantize_moe_experts", "llama4_linearized_experts"
    if config.get(linear) and fields.values["quantization"] in ("4bit", "8bit"):
        why = f"{linear} makes a linear layer of each expert, which is quantised like the others"
        fields.derive("expert_quantization", fields.values["quantization"], why, key=linear)
    elif config.get(key) and adapter:
        bits = "8bit" if config.get("load_in_8bit") else "4bit"
        fields.derive("expert_quantization", bits, f"{key} quantises the experts while they load", key=key)
    else:
        fields.derive("expert_quantization", None, f"{key} is not on")


def _attention(fields: Fields) -> None:
    config = fields.config
    fields.keys["attn_implementation"] = "attn_implementation"
    if config.get("attn_implementation") is None:
        for flag, name in LEGACY_FLAGS.items():
            if config.get(flag):
                fields.derive("attn_implementation", name, f"{flag} is the old spelling", key=flag)
                return
        if config.get("gemma4_hybrid_attn_impl"):
            why = "gemma4_hybrid_attn_impl brings it"
            fields.derive("attn_implementation", "flash_attention_2", why, key="gemma4_hybrid_attn_impl")
            return
    fields.take("attn_implementation", "sdpa", why="unset: transformers picks sdpa")


def _loss(fields: Fields, schema: Schema) -> None:
    config = fields.config
    known = [key for key in ("use_dft", "use_eaft") if schema.key_type(key)]
    plugins = " ".join(str(plugin) for plugin in config.get("plugins", ()))
    # Listing the plugin turns it on; an explicit false or null turns it off again.
    wanted = config.get("cut_cross_entropy", "cut_cross_entropy" not in config)
    cut = "CutCrossEntropyPlugin" in plugins and bool(wanted)
    liger = "LigerPlugin" in plugins
    # Both patch the same forward; the plugin that is listed last wins.
    cut = cut and not (
        liger
        and config.get("liger_fused_linear_cross_entropy")
        and plugins.rindex("LigerPlugin") > plugins.rindex("CutCrossEntropyPlugin")
    )
    weighted = next((key for key in known if config.get(key)), None)
    choices = (
        (weighted, str(weighted).removeprefix("use_"), f"{weighted}: the trainer's own loss of the logits", weighted),
        (cut, "cut", "CutCrossEntropyPlugin is listed", "plugins"),
        (
            liger and config.get("liger_fused_linear_cross_entropy"),
            "liger_fused_linear",
            "Liger's fused linear cross entropy",
            "liger_fused_linear_cross_entropy",
        ),
        (liger and config.get("liger_cross_entropy"), "liger", "Liger's cross entropy", "liger_cross_entropy"),
        (config.get("chunked_cross_entropy"), "chunked", "chunked cross entropy", "chunked_cross_entropy"),
    )
    for applies, kernel, why, key in choices:
        if applies:
            fields.derive("loss_kernel", kernel, why, key=key)
            break
    else:
        fields.derive("loss_kernel", "stock", "no loss kernel is in use: full logits in fp32")
    fields.at_least_one("loss_chunks", 8, key="chunked_cross_entropy_num_chunks")
    used = tuple(name for name in _LIGER if liger and config.get(f"liger_{name}"))
    fields.derive("liger", used, "LigerPlugin and its keys" if used else "no Liger kernel is in use")


def _lora_kernels(fields: Fields, target: Target) -> None:
    """Fills lora_kernels (whether any is on), fused_lora (which), and what type their gradients have."""
    fused, why = _fused_lora(fields, target)
    fields.derive("lora_kernels", bool(fused), why)
    fields.derive("fused_lora", fused, why)
    wide = schema_in(target.stack).since("0.20.0")
    fields.derive("fused_lora_wide_grads", wide, f"the kernels of 0.20 and later{'' if wide else ' only'}")
    fields.derive("fused_lora_squared", wide, f"a kernel of 0.20 and later{'' if wide else ' only'}")
    absent = (
        "fused_lora_in_place",
        "fused_lora_traced",
        "fused_layers",
        "packed_attention",
        "compiled_layers",
        "tables_each_layer",
        "head_in_fp32",
        "shifts_logits",
    )
    fields.neutral(*absent, why="Axolotl has no default")
    fields.neutral("saved_pair_tied", why="PEFT copies each module")
    fields.neutral(
        "warms_up",
        "halves_warm_up",
        "copies_to_half",
        "multiplies_first",
        "embedding_leaves_below",
        why="transformers' own way of loading",
    )
    _embeddings_want_grads(fields)


def _embeddings_want_grads(fields: Fields) -> None:
    name, key = "embeddings_want_grads", "unfrozen_parameters"
    opened = any(part in pattern for pattern in fields.values["unfrozen"] for part in ("lm_head", "embed_tokens"))
    if fields.values["adapter"] is not None:
        fields.derive(name, True, "Axolotl asks for it before it adds the adapter")
    elif opened:
        fields.derive(name, True, f"{key} names the head or the embeddings", key=key)
    else:
        fields.derive(name, False, "no adapter")


def _fused_lora(fields: Fields, target: Target) -> tuple[tuple[str, ...], str]:
    """Which LoRA kernels are on, and why. One key that is written, even as false, leaves the others off."""
    config, schema = fields.config, schema_in(target.stack)
    # monkeypatch/lora_kernels.py up to 0.15: "Cannot patch layers - requires no dropout"
    drops = not schema.since("0.16.0") and config.get("lora_dropout", 0) != 0
    if drops:
        return (), f"not with lora_dropout in Axolotl {schema.short}"
    if any(config.get(kernel) is not None for kernel in KERNELS):
        on = [kernel for kernel in KERNELS if config.get(kernel)]
        # the embeddings' kernel is installed along with the others only
        if config.get("adapter") is None or not any(kernel != "lora_embedding_kernel" for kernel in on):
            return (), "no lora_*_kernel of attention or MLP is on"
        return _parts(on), "lora_*_kernel is written"
    blocked = (
        (config.get("adapter") not in ("lora", "qlora"), "no LoRA adapter"),
        (config.get("rl") is not None, "not enabled for RL"),
        (config.get("adapter") == "lora" and config.get("load_in_8bit"), "not for 8-bit LoRA"),
        # check_auto_enable_lora_kernels (utils/schemas/config.py) came with 0.10, and up to 0.15 wants a written 0
        (not schema.since("0.10.0"), f"Axolotl {schema.short} leaves them off"),
        (not schema.since("0.16.0") and "lora_dropout" not in config, "lora_dropout: 0 is not written"),
        (config.get("trust_remote_code") and schema.since("0.15.0"), "not with trust_remote_code"),
        (config.get("nvfp4_merge_aware"), "not with nvfp4_merge_aware"),
        (fields.values["sharding"] == "fsdp1" and target.gpus > 1, "not under FSDP1"),
    )
    for applies, why in blocked:
        if applies:
            return (), why
    return _parts(kernel for kernel in KERNELS if schema.key_type(kernel)), "on by themselves for LoRA"


def _parts(kernels: Iterable[str]) -> tuple[str, ...]:
    return tuple(kernel.removeprefix("lora_").removesuffix("_kernel") for kernel in kernels)
