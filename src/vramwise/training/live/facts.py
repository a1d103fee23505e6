"""What the objects of a run hold that no script says: casts, frozen weights, adapters' dtypes, the reference, hooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.models.parameters import parameters
from vramwise.training.live.model import (
    Compared,
    adapted,
    adapter_of,
    base_dtype,
    compared,
    expressions,
    held,
    inner,
    quantised,
    type_of,
)
from vramwise.types import ModelSpec, Unfollowed

Facts = dict[str, tuple[Any, str]]
# Parameters beyond the description that are less than this part of the model are only mentioned.
_FEW = 0.01
_HEADS = frozenset({"lm_head", "embed_out", "score", "classifier", "v_head", "qa_outputs", "pooler", "cls"})
_WORDS: Mapping[str, str] = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}


def facts_of(model: Any, spec: ModelSpec) -> tuple[Facts, list[str]]:
    """Return the settings that the model's objects decide, with reasons, and what is assumed about it."""
    found, notes = compared(model, spec), []
    facts: Facts = {}
    facts |= _casts(model, spec, found)
    facts |= _adapters(model)
    facts |= _trained(model, spec, found)
    facts |= _hooks(inner(model))
    total = sum(one.parameter.numel() for one in held(model))
    more = sum(one.parameter.numel() for one in found.more if not _is_head(one.name))
    lacking = [name for name in found.lacking if not _is_head(name)]
    if total and more > _FEW * total:
        name = found.more[0].name
        why = f"{more:,} parameters that models of type {spec.model_type} do not have, such as {name}"
        facts["unfollowed"] = ((Unfollowed(name="the model's own modules", less=False, why=why),), why)
    elif more:
        notes.append(f"{more:,} parameters of the model's own are not counted ({found.more[0].name}…)")
    if len(lacking) > _FEW * len(parameters(spec)):
        why = f"the model lacks {len(lacking)} parameters of its type, such as {lacking[0]}"
        facts["unfollowed"] = ((Unfollowed(name="parts that the model lacks", less=True, why=why),), why)
    base = type(inner(model))
    if spec.trace is None and not base.__module__.startswith("transformers."):
        notes.append(f"{base.__name__} is a class of its own: predicted as models of type {spec.model_type}")
    if adapter_of(model) is not None and adapted(model).mixed:
        notes.append("adapters have different ranks: the highest is taken for all")
    return facts, notes


def _is_head(name: str) -> bool:
    """Return whether a parameter is a head for tokens, classes or values, or a pooler, which the objective counts."""
    return not _HEADS.isdisjoint(name.split("."))


def _casts(model: Any, spec: ModelSpec, found: Compared) -> Facts:
    """Return which weights of a 16-bit model are in fp32."""
    base = inner(model)
    dtype = _WORDS.get(str(base_dtype(base)))
    if dtype is None:
        return {}
    why = "the dtypes of the model's parameters"
    facts: Facts = {"fp32_embeddings": (dtype == "fp32", why)}
    if dtype == "fp32":
        return facts
    by_kind: dict[str, list[str]] = {}
    wide: dict[str, list[str]] = {}
    for one in parameters(spec):
        held_one = found.same.get(one.name)
        kind = None if held_one is None else type_of(held_one.parameter)
        if kind is not None:  # not quantised
            by_kind.setdefault(one.kind, []).append(one.name)
            if kind == "fp32":
                wide.setdefault(one.kind, []).append(one.name)
    bits, _ = quantised(base)
    unquantised = by_kind.keys() - {"bias"}
    prepared = bits is not None and unquantised and all(wide.get(kind) == by_kind[kind] for kind in unquantised)
    facts["quantised_base_prepared"] = ("all" if prepared else "no", why)
    facts["upcasts_stay"] = (bool(wide), why)
    cast = [] if prepared else [([kind] if names == by_kind[kind] else names) for kind, names in wide.items()]
    facts["upcasts_at_load"] = (tuple(name for names in cast for name in names), why)
    return facts


def _adapters(model: Any) -> Facts:
    dtypes = {str(one.dtype) for name, one in model.named_parameters() if ".lora_" in name and one.requires_grad}
    if len(dtypes) != 1:
        return {}
    dtype, base = dtypes.pop(), inner(model)
    why = f"the adapter is in {_WORDS.get(dtype, dtype)}"
    if quantised(base)[0] is not None:
        return {"half_adapters": (dtype == "torch.bfloat16", why), "adapters_as_base": (False, why)}
    same = dtype == str(base_dtype(base))
    return {"adapters_as_base": (same and dtype != "torch.float32", why), "half_adapters": (False, why)}


def _trained(model: Any, spec: ModelSpec, found: Compared) -> Facts:
    """Return the parameters that are trained, if they are others than the method's."""
    names = {one.full: name for name, one in found.same.items()}
    with_adapter = adapter_of(model) is not None
    every, trained, expected = [], [], []
    for full, parameter in model.named_parameters():
        name = names.get(full)
        if name is None and not (with_adapter and ".lora_" in full):
            continue
        saved = ".modules_to_save." in full
        # the names that an adapter's parameters, and those below it, have in a run
        named = name if not with_adapter else f"base_model.model.{name}" if saved else full
        assert named is not None
        every.append(named)
        if parameter.requires_grad:
            trained.append(named)
        if not with_adapter or saved or ".lora_" in full:
            expected.append(named)
    others = [one.name for one in found.more if one.parameter.requires_grad]
    if not trained and not others:
        raise VramwiseError("every parameter of this model is frozen: nothing would be trained")
    if trained == expected:
        return {}
    count = len(every) - len(trained)
    why = f"{count:,} of {len(every):,} parameters are frozen (requires_grad is False)"
    return {"unfrozen": (expressions([*trained, *others], [*every, *others]), why)}


def _hooks(base: Any) -> Facts:
    if getattr(base, "_require_grads_hook", None) is None and not getattr(base, "_require_grads_hooks", None):
        return {}
    return {"embeddings_want_grads": (True, "enable_input_require_grads() was called")}


def reference_facts(trainer: Any) -> Facts:
    """Return the second model of a preference trainer, as it is."""
    if not hasattr(trainer, "ref_model"):
        return {}
    if trainer.ref_model is not None:
        dtype = _WORDS.get(str(base_dtype(inner(trainer.ref_model))), "bf16")
        why = "the trainer's ref_model"
        return {"reference": ("model", why), "reference_dtype": (dtype, why)}
    if adapter_of(trainer.model) is None:
        return {"reference": ("none", "the trainer has no ref_model")}
    copied = len(trainer.model.peft_config) > 1
    return {"reference": ("adapter_copy", "the model has a second adapter")} if copied else {}
