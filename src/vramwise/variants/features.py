"""The features of a run, by which it is compared with runs whose memory was measured.

A feature is a kind and a phrase ("optimizer" → "muon"). Sizes are not features, since they are counted exactly. Every
RunSpec field that is a word or a switch is a feature unless its setting says otherwise (`compared`), so that new fields
are compared too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import cache

from vramwise.allocator.variables import EXPANDABLE
from vramwise.types import SECTIONS, SETTINGS, ModelSpec, RunSpec, setting_of

# The beginnings of field types that are compared: words, switches, lists of words, and optional numbers.
_WORDED = ("bool", "str", "Literal", "tuple[str", "int | None", "float | None")
_LOSSES = {
    "stock": "stock loss",
    "liger_fused_linear": "Liger's fused linear cross entropy",
    "liger": "Liger's cross entropy",
    "cut": "cut cross entropy",
    "chunked": "chunked cross entropy",
    "tiled": "a loss in tiles of the head",
    "slices": "a loss in slices of tokens",
    "fp32_slices": "a loss in fp32 slices of tokens",
    "rows": "a loss by rows of the head",
    "room": "a loss in chunks by free memory",
    "in_place": "a loss in place of the logits",
}
_BASES = {"4bit": "a 4-bit", "8bit": "an 8-bit", "gptq": "a GPTQ"}
_SHARDING = {"none": "not sharded", "ddp": "DDP", "fsdp1": "FSDP 1", "fsdp2": "FSDP 2"} | {
    f"zero{stage}": f"ZeRO {stage}" for stage in (1, 2, 3)
}
_PACKING = {"none": "rows not packed", "one": "packed into one row", "micro": "packed rows"}


def features(run: RunSpec, model: ModelSpec) -> dict[str, str]:
    """Return every feature of a run by kind; the phrases are for display."""
    found = dict(_named(run, model))
    switches = {name: run.value(name) for name in _switches()}
    if not model.num_experts:
        switches["expert_quantization"] = None
    return found | {name: _phrase(name, value) for name, value in switches.items()}


@cache
def _switches() -> tuple[str, ...]:
    """Return the fields that are compared directly: not those described below, nor those without an effect."""
    worded = [one for kind in SECTIONS.values() for one in fields(kind) if str(one.type).startswith(_WORDED)]
    settings = [(one.name, setting_of(one)) for one in worded]
    return tuple(about.flat or name for name, about in settings if about is not None and about.compared)


def _phrase(name: str, value: object) -> str:
    """Return `no X`, `X`, or `X` with its value; for numbers and lists only whether there are any."""
    words = SETTINGS[name].phrase or name.replace("_", " ")
    if value in (None, False, "off", "none", ()):
        return f"no {words}"
    return f"{words} {value}" if isinstance(value, str) else words


def _named(run: RunSpec, model: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yield the features that need more than one field."""
    yield "trainer", run.trainer
    release = run.target.stack.releases.get(run.trainer)
    if release is not None:
        yield "release", f"{run.trainer} {'.'.join(str(part) for part in release.parts[:2])}"
    yield "method", _method(run)
    yield "trained whole", "modules trained whole" if run.adapter.lora_modules_to_save else "no modules trained whole"
    yield "dropout", "LoRA dropout" if run.adapter.kind and run.adapter.lora_dropout else "no LoRA dropout"
    yield "rl", f"rl: {run.objective.rl}" if run.objective.rl else "supervised"
    yield "precision", run.precision.compute if run.precision.autocast else f"pure {run.precision.compute}"
    yield "attention", f"{run.kernels.attn_implementation} attention"
    yield "packing", _PACKING.get(run.shapes.packing_rows, run.shapes.packing_rows)
    yield "widths", "constant widths" if run.shapes.constant_shapes else "varying widths"
    yield "loss", _LOSSES.get(run.kernels.loss_kernel, run.kernels.loss_kernel)
    yield "liger", "Liger kernels" if run.kernels.liger else "no Liger kernels"
    yield "checkpointing", _checkpointing(run)
    yield "optimizer", _optimizer(run.optimizer.name.lower())
    yield "evaluation", _evaluation(run)
    yield (
        "allocator",
        "expandable segments"
        if EXPANDABLE in run.allocator.settings
        else run.allocator.settings or "default allocator",
    )
    if model.trace is not None:
        yield "family", "a traced model"
    else:
        yield "family", f"{model.model_type} taken for llama" if model.family_assumed else f"the {model.family} family"
    yield "experts", "a mixture of experts" if model.num_experts else "dense"
    yield "tower", "a vision or audio tower" if model.tower or model.text_part else "text alone"
    yield "cards", "several GPUs" if run.batch.gpus > 1 else "one GPU"
    yield "sharding", _SHARDING.get(run.sharding.kind, run.sharding.kind)
    gpu = run.target.gpu
    yield "vendor", "an NVIDIA card" if gpu is None or gpu.vendor == "nvidia" else gpu.name


def _method(run: RunSpec) -> str:
    if run.adapter.kind is None:
        return "full fine-tune" + (
            f" of {_BASES.get(run.loading.quantization, '')} base" if run.loading.quantization else ""
        )
    name = "LoRA" if run.adapter.kind in ("lora", "qlora") else run.adapter.kind
    base = (
        f" on {_BASES.get(run.loading.quantization, run.loading.quantization)} base" if run.loading.quantization else ""
    )
    bare = " with bare parameters" if run.adapter.lora_target_parameters else ""
    return ("DoRA" if run.adapter.use_dora else name) + bare + base


def _checkpointing(run: RunSpec) -> str:
    if not run.savings.recompute:
        return "no checkpointing"
    return "reentrant checkpointing" if run.savings.checkpointing_reentrant else "checkpointing"


def _optimizer(name: str) -> str:
    """Return one name per optimizer, since libraries use several for some."""
    name = name.replace("_bnb_", "_")
    return {"adamw_hf": "adamw_torch", "adamw": "adamw_torch", "adam": "adamw_torch"}.get(name, name)


def _evaluation(run: RunSpec) -> str:
    if run.evaluation.eval_batch_size is None:
        return "no evaluation"
    same = run.evaluation.eval_batch_size == run.batch.micro_batch_size
    return "evaluation at the micro-batch" if same else "evaluation at another batch"
