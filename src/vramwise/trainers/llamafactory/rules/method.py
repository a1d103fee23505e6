"""LLaMA-Factory's own rules about the training method and quantisation: options that it never reads."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.llamafactory.resolve.adapter import ON_THE_FLY
from vramwise.types import RunSpec, Severity

_NO_STAGE = "model_name_or_path: Qwen/Qwen3-4B\ndo_train: true\ndataset: identity\n"
# Prefixes of keys that are read only if another key is on.
_BELONG = {"galore_": "use_galore", "apollo_": "use_apollo", "badam_": "use_badam"}
_FREEZE = ("freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules")
_ADAPTER = ("lora_rank", "lora_alpha", "lora_dropout", "lora_target", "additional_target")
_REFERENCE = ("ref_model", "ref_model_adapters", "ref_model_quantization_bit")


@rule(
    id="option-never-read",
    severity=Severity.WARNING,
    also=(Severity.INFO,),
    bad=f"{_NO_STAGE}stage: rm\nfinetuning_type: lora\npacking: true\n",
    good=f"{_NO_STAGE}stage: sft\nfinetuning_type: lora\npacking: true\nneat_packing: true\n",
    beyond_trainer="LLaMA-Factory parses every key, but never reads some of them.",
)
def option_never_read(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An option that the run never reads.

    The keys of all methods share one flat file, so many can be set without effect: `packing` in a stage that does not
    pack, a `max_length`, which limits generated texts while `cutoff_len` cuts rows, a `ref_model` where no loss needs
    one, sizes of an adapter in a full fine-tune, options of GaLore, APOLLO or BAdam without their switch, an `optim`
    that Adam-mini or Muon replaces. Keys that affect memory are a warning; others are a note.
    """
    config = run.config
    stage, kind = config.get("stage", "sft"), config.get("finetuning_type", "lora")
    for key, why in _without_effect(run, stage):
        yield Hit(f"{key} has no effect: {why}", key)
    idle = [key for key in _FREEZE if key in config and kind != "freeze" and not config.get("use_llama_pro")]
    idle += [key for key in _ADAPTER if key in config and kind not in ("lora", "oft")]
    for key in config.values:
        switch = next((switch for start, switch in _BELONG.items() if str(key).startswith(start)), None)
        idle += [key] if switch is not None and not config.get(switch) else []
    for key in idle:
        message = f"{key} has no effect with finetuning_type {kind}"
        if key.startswith(tuple(_BELONG)):
            message = f"{key} has no effect: its switch is off"
        yield Hit(message, key, severity=Severity.INFO, pedantic=True)


def _without_effect(run: RunSpec, stage: str) -> Iterator[tuple[str, str]]:
    config = run.config
    if "max_length" in config and not config.get("predict_with_generate"):
        yield (
            "max_length",
            f"it limits generated text; training rows are cut at cutoff_len {run.shapes.sequence_len}",
        )
    if config.get("packing") and stage not in ("pt", "sft"):
        yield "packing", f"stage {stage} packs nothing"
    needs_none = stage == "dpo" and config.get("pref_loss") in ("orpo", "simpo")
    if stage not in ("dpo", "kto", "ppo") or needs_none:
        why = f"pref_loss {config.get('pref_loss')} needs no reference" if needs_none else f"stage {stage} needs none"
        yield from ((key, why) for key in _REFERENCE if config.get(key) and not config.get("use_asft_loss"))
    if config.get("reward_model") and stage != "ppo":
        yield "reward_model", f"stage {stage} scores nothing"
    for key in ("use_adam_mini", "use_muon"):
        if config.get(key) and config.get("optim"):
            yield "optim", f"{key} uses its own optimizer"
    if config.get("fp8_enable_fsdp_float8_all_gather") and not config.get("fp8"):
        yield "fp8_enable_fsdp_float8_all_gather", "fp8 is off, and LLaMA-Factory turns it on in the wrong place"


_NO_MODEL = "stage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"
_KEY, _METHOD = "quantization_bit", "quantization_method"
_BITS = {"bnb": (4, 8), "hqq": (1, 2, 3, 4, 5, 6, 8), "eetq": (8,)}


@rule(
    id="quantization-ignored",
    also=(Severity.WARNING,),
    bad=f"model_name_or_path: Qwen/Qwen3-4B\n{_NO_MODEL}quantization_bit: 4\nquantization_method: gptq\n",
    good=f"model_name_or_path: Qwen/Qwen3-4B\n{_NO_MODEL}quantization_bit: 4\nquantization_method: bnb\n",
    beyond_trainer="LLaMA-Factory ignores methods it does not support here, and loads the base unquantised.",
)
def quantization_ignored(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """quantization_bit that quantises nothing, or in bits that its method has not.

    On the fly only bitsandbytes (4 and 8 bits), HQQ and EETQ (8) quantise. Other names under `quantization_method`
    (gptq, awq, aqlm) are those of checkpoints that are stored quantised: with one of them `quantization_bit` does
    nothing and the base is loaded whole, four times as large as meant. A checkpoint that is stored quantised keeps its
    own bits, whatever the key says. FSDP and ZeRO 3 take 4 bits alone.
    """
    bits, method = run.config.get(_KEY), run.config.get(_METHOD, "bnb")
    if bits is None:
        return
    if run.loading.quantization == "gptq":
        message = f"{_KEY} {bits} has no effect: the checkpoint is stored quantised, as its name says"
        yield Hit(message, _KEY, unsafe("Delete it", delete_key(_KEY)), severity=Severity.WARNING)
    elif method not in ON_THE_FLY:
        message = f"{_METHOD} {method} does not quantise while loading: the base is loaded in full, not in {bits} bits"
        fix = unsafe("Use bitsandbytes: remove the method", delete_key(_METHOD))
        yield Hit(message, _METHOD, fix, still_runs=True)
    elif bits not in _BITS[method]:
        taken = ", ".join(map(str, _BITS[method]))
        yield Hit(f"{_KEY} {bits}: {method} supports {taken} bits, so LLaMA-Factory stops", _KEY)
    elif bits != 4 and run.sharding.kind in ("fsdp1", "fsdp2", "zero3"):
        yield Hit(f"{_KEY} {bits} under {run.sharding.kind}: only 4 bits are supported, so LLaMA-Factory stops", _KEY)
