"""Which modules and parameters get an adapter for a given spelling of the targets: as PEFT 0.21 on transformers 5.

Knows PEFT's matching (whole name or its end after a dot; one string = a regular expression; "all-linear") and how PEFT
redirects the projections of experts, which transformers 5 stores as 3-D parameters. Does not know ranks or dtypes.
Source: peft `tuners_utils.py` and `utils/transformers_weight_conversion.py`; the tests compare with PEFT itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple, cast

from vramwise.bundled import bundled_json
from vramwise.errors import VramwiseError
from vramwise.models.families import block_of
from vramwise.models.parameters import linear_modules, parameters
from vramwise.models.patterns import Pattern, pattern_of
from vramwise.types import ModelSpec, RunSpec

ALL_LINEAR = "all-linear"
# No targets are given: PEFT uses its defaults for the model type (peft 0.21.2, utils/constants.py).
BY_MODEL = "by the kind of model"
_MODULE_NAME = re.compile(r"[\w.]+")


class LoraTarget(NamedTuple):
    """One place for an adapter: A is (rank × experts × in), B is (out × rank × experts)."""

    name: str
    kind: Literal["linear", "embedding", "parameter"]
    in_features: int
    out_features: int
    layer: int | None
    experts: int = 1
    rank_factor: int = 1  # 2 if two old projections were fused into this one: PEFT doubles the rank


def linear_leaf_names(model: ModelSpec) -> tuple[str, ...]:
    """Return the last name parts of all linear modules except the head, which `lora_target_linear` passes to PEFT."""
    return tuple(dict.fromkeys(_leaf(module.name) for module in linear_modules(model) if not module.head))


def wanted_targets(run: RunSpec, model: ModelSpec) -> Sequence[str] | str:
    """Return the targets that PEFT is given.

    Experts are not modules: only "all-linear" or their old names reach them.
    """
    if run.adapter.lora_target_linear and run.adapter.linear_targets_by_name:
        return tuple(dict.fromkeys((*run.adapter.lora_target_modules, *linear_leaf_names(model))))
    if run.adapter.lora_target_linear:
        return ALL_LINEAR
    if not run.adapter.lora_target_modules:
        return () if run.adapter.lora_target_parameters else ALL_LINEAR
    if run.adapter.lora_target_modules == (BY_MODEL,):
        return peft_targets(model)
    return run.adapter.lora_target_modules


def peft_targets(model: ModelSpec) -> Sequence[str]:
    """Return PEFT's default targets. Raises VramwiseError if PEFT has none for the model, as PEFT does."""
    known = _peft_targets()
    found = known.get(model.model_type, known.get(model.model_type.removesuffix("_text")))
    if found is None:
        raise VramwiseError(f"PEFT has no default LoRA targets for {model.model_type}: set lora_target_modules")
    return (found,) if isinstance(found, str) else tuple(found)


@cache
def _peft_targets() -> Mapping[str, Sequence[str] | str]:
    return cast("Mapping[str, Sequence[str] | str]", bundled_json("models/peft_targets.json"))


def lora_targets(model: ModelSpec, targets: Sequence[str] | str, bare: Sequence[str] = ()) -> Sequence[LoraTarget]:
    """Return where the adapters go, in the order of the model. Targets that match nothing add nothing.

    `bare`: PEFT's `target_parameters`, parameters that get an adapter of their own, whichever module holds them.
    """
    found = _of_modules(model, targets)
    there = {target.name for target in found}
    return (*found, *(one for one in _bare(model, bare) if one.name not in there))


def _bare(model: ModelSpec, names: Collection[str]) -> Iterator[LoraTarget]:
    """Yield the parameters of two or three dimensions that have one of these names, or end with it after a dot."""
    for parameter in parameters(model) if names else ():
        if len(parameter.shape) not in (2, 3) or not _matches(parameter.name, names):
            continue
        experts, outputs, inputs = (1, *parameter.shape)[-3:]
        if parameter.kind == "linear":
            yield LoraTarget(parameter.name.removesuffix(".weight"), "linear", inputs, outputs, parameter.layer)
        elif parameter.kind in ("experts", "router"):
            yield LoraTarget(parameter.name, "parameter", inputs, outputs, parameter.layer, experts)


def _of_modules(model: ModelSpec, targets: Sequence[str] | str) -> Sequence[LoraTarget]:
    targets = _as_written(targets)
    mixture = block_of(model).mixture
    redirects = mixture.peft_names if mixture is not None and (model.num_experts or model.trace) else {}
    if redirects:
        return tuple(_redirected(model, redirects, targets))
    return tuple(_plain(model, targets))


def _as_written(targets: Sequence[str] | str) -> Sequence[str] | str:
    """Return the targets in PEFT's form.

    A single target that cannot be a module name becomes a string: "all-linear" or a regular expression.
    """
    if not isinstance(targets, str):
        if len(targets) != 1 or (targets[0] != ALL_LINEAR and _MODULE_NAME.fullmatch(targets[0])):
            return targets
        targets = targets[0]
    _pattern(targets)
    return targets


def _pattern(text: str) -> Pattern:
    return pattern_of(text, "lora_target_modules")


def _plain(model: ModelSpec, targets: Collection[str] | str) -> Iterator[LoraTarget]:
    targets = targets if isinstance(targets, str) else frozenset(targets)
    for parameter in parameters(model):
        # GPT-2's position table is an embedding, too.
        if parameter.kind == "embedding" and targets != ALL_LINEAR:
            name = parameter.name.removesuffix(".weight")
            if _matches(name, targets):
                rows, hidden = parameter.shape
                yield LoraTarget(name, "embedding", rows, hidden, None)
    for module in linear_modules(model):
        if (targets == ALL_LINEAR and not module.head) or (targets != ALL_LINEAR and _matches(module.name, targets)):
            yield LoraTarget(module.name, "linear", module.in_features, module.out_features, module.layer)


def _redirected(model: ModelSpec, redirects: Mapping[str, str], targets: Sequence[str] | str) -> Iterator[LoraTarget]:
    """Yield targets with names of expert projections as parameters.

    Modules that merely share such a name are no longer matched.
    """
    names = _leaves(model, redirects, targets) if isinstance(targets, str) else targets
    kept = [name for name in names if _leaf(name) not in redirects]
    moved = [redirects[_leaf(name)] for name in names if _leaf(name) in redirects]
    yield from _plain(model, kept)
    for parameter in parameters(model):
        wanted = [new for new in set(moved) if parameter.name.endswith(f".{new}")]
        if parameter.kind == "router" and wanted:
            experts, hidden = parameter.shape
            yield LoraTarget(parameter.name, "parameter", hidden, experts, parameter.layer)
        elif parameter.kind == "experts" and wanted:
            experts, outputs, inputs = parameter.shape
            factor = 2 if wanted == ["gate_up_proj"] else 1
            yield LoraTarget(parameter.name, "parameter", inputs, outputs, parameter.layer, experts, factor)


def _leaves(model: ModelSpec, redirects: Mapping[str, str], pattern: str) -> list[str]:
    """Return the leaf names that "all-linear" or a regular expression matches."""
    if pattern == ALL_LINEAR:
        return list(dict.fromkeys((*linear_leaf_names(model), *redirects)))
    matches = _pattern(pattern).fullmatch
    found = {_leaf(module.name) for module in linear_modules(model) if matches(module.name)}
    for parameter in parameters(model):
        if matches(parameter.name) or matches(parameter.name.removesuffix(".weight")):
            found.add(_leaf(parameter.name.removesuffix(".weight")))
        # The names of projections before they were fused: experts.gate_proj for experts.gate_up_proj.
        container, _, leaf = parameter.name.rpartition(".")
        found |= {old for old, new in redirects.items() if new == leaf and matches(f"{container}.{old}")}
    return sorted(found)


def _matches(name: str, targets: Collection[str] | str) -> bool:
    """Return whether a target equals the name, or its end after a dot."""
    if isinstance(targets, str):
        return _pattern(targets).fullmatch(name)
    parts = name.split(".")
    return any(".".join(parts[start:]) in targets for start in range(len(parts)))


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]
