"""RunSpec: a fully resolved run, independent of the trainer, in sections.

Each setting has a flat name, which JSON, origins, `keys` and changes use, and one attribute in its section:
`run.sharding.kind` is `sharding`. `value` and `changed` use flat names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from math import ceil
from typing import Any

from vramwise.types.document import Config, DuplicateKey, Origin, join_key
from vramwise.types.machine import Target
from vramwise.types.sections import (
    Setting,
    adapter,
    allocator,
    batch,
    evaluation,
    kernels,
    loading,
    objective,
    optimizer,
    precision,
    savings,
    setting,
    setting_of,
    shapes,
    sharding,
)

# What `new` and `predict` write if no data is given.
PLACEHOLDERS = ("your/dataset", "your_dataset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long a config trains: passes over the data, or a number of steps.

    `held_out`: a share or a number of samples. `split_seed`: the seed with which `datasets` draws the held-out samples;
    None: every run draws new ones. Held-out samples are the first ones drawn; with `held_out_last`, they are the last
    of the samples that are not dropped for their length.
    """

    epochs: float = 1.0
    max_steps: int | None = None
    held_out: float = 0.0
    split_seed: int | None = None
    held_out_last: bool = False

    def held_out_of(self, samples: int) -> int:
        """Return how many of `samples` samples are held out; `datasets` rounds a share up."""
        return ceil(self.held_out * samples) if self.held_out < 1 else int(self.held_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfollowed:
    """Something that the trainer does and no prediction includes.

    `less`: the real run needs at most as much memory as predicted. `experts_only`: it happens only in models with
    experts. `only_loading`: steps are as predicted. `least_share`: the share of the predicted memory that the run needs
    at least; None: that of weights, gradients and optimizer states. `more_weights` and `more_rest`: the largest share
    by which it may increase the predicted memory of weights and of everything else; None if that is not known.
    """

    name: str
    less: bool
    why: str
    experts_only: bool = False
    only_loading: bool = False
    least_share: float | None = None
    more_weights: float | None = None
    more_rest: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What a config does on its target. None means "there is none", never "a default".

    `origins` records where each setting came from. `config` holds what was written, for rules about the file itself.
    `target` is the machine.
    """

    trainer: str
    trainer_title: str
    config: Config
    target: Target
    origins: Mapping[str, Origin]
    keys: Mapping[str, str]  # setting → the trainer's own key for it, written or not
    model_type: str | None  # transformers' name of the base model's architecture; None: not known
    duplicate_keys: tuple[DuplicateKey, ...]  # keys that appear twice in the file
    added_variables: Mapping[str, str]  # allocator variables that the trainer itself sets
    base_model: str | None = field(metadata=setting(None, ghost=False))
    batch: batch.Batch
    shapes: shapes.Shapes
    evaluation: evaluation.Evaluation
    precision: precision.Precision
    loading: loading.Loading
    adapter: adapter.Adapter
    objective: objective.Objective
    optimizer: optimizer.Optimizer
    savings: savings.Savings
    kernels: kernels.Kernels
    sharding: sharding.Sharding
    allocator: allocator.Allocator
    # things that the trainer does and no prediction includes
    unfollowed: tuple[Unfollowed, ...] = field(metadata=setting((), ghost=False, rare=True))

    @property
    def output_dir(self) -> str | None:
        """The output folder that the file names, or None; all trainers use the same key for it."""
        written = self.config.get("output_dir")
        return written if isinstance(written, str) and written.strip() else None

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The keys of the file, at most two levels deep, whose value is a placeholder for data."""
        found: list[str] = []
        for key, value in self.config.document.values.items():
            if _is_placeholder(value):
                found.append(key)
            for place, block in enumerate(value if isinstance(value, list) else ()):
                inner = block.items() if isinstance(block, Mapping) else ()
                found += [join_key((key, place, str(name))) for name, one in inner if _is_placeholder(one)]
        return tuple(found)

    def value(self, name: str) -> Any:
        """Return the setting with this flat name; raises KeyError if there is none."""
        section, attribute = PLACES[name]
        return getattr(getattr(self, section) if section else self, attribute)

    def settings(self) -> Iterator[tuple[str, Any]]:
        """Yield every setting with its flat name, in reading order."""
        return ((name, self.value(name)) for name in SETTINGS)

    def changed(self, **values: Any) -> RunSpec:
        """Return the run with new values for settings (flat names) or for its other fields (origins, target…)."""
        direct: dict[str, Any] = {}
        in_sections: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            section, attribute = PLACES.get(name, ("", name))
            if section:
                in_sections.setdefault(section, {})[attribute] = value
            else:
                direct[attribute] = value
        made = {section: replace(getattr(self, section), **part) for section, part in in_sections.items()}
        return replace(self, **direct, **made)


def _is_placeholder(value: Any) -> bool:
    return isinstance(value, str) and value in PLACEHOLDERS


# The types of the sections by attribute of a run.
SECTIONS: Mapping[str, type[Any]] = {
    "batch": batch.Batch,
    "shapes": shapes.Shapes,
    "evaluation": evaluation.Evaluation,
    "precision": precision.Precision,
    "loading": loading.Loading,
    "adapter": adapter.Adapter,
    "objective": objective.Objective,
    "optimizer": optimizer.Optimizer,
    "savings": savings.Savings,
    "kernels": kernels.Kernels,
    "sharding": sharding.Sharding,
    "allocator": allocator.Allocator,
}


def _in_order() -> Iterator[tuple[str, tuple[str, str], Setting]]:
    """Yield the flat name, the place and the facts of every setting, in reading order."""
    for own in fields(RunSpec):
        for inner in fields(SECTIONS[own.name]) if own.name in SECTIONS else (own,):
            about = setting_of(inner)
            if about is not None:
                yield about.flat or inner.name, ("" if inner is own else own.name, inner.name), about


# Flat name of a setting → its section ("" for the run itself) and attribute; and what it says about itself.
PLACES: Mapping[str, tuple[str, str]] = {name: place for name, place, _ in _in_order()}
SETTINGS: Mapping[str, Setting] = {name: about for name, _, about in _in_order()}


def in_sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings, given by flat name, as arguments of RunSpec; raises TypeError for unknown or missing ones."""
    unknown = values.keys() - PLACES.keys()
    if unknown:
        raise TypeError(f"a run has no setting {', '.join(sorted(unknown))}")
    parts: dict[str, dict[str, Any]] = {section: {} for section in ("", *SECTIONS)}
    for name, place in PLACES.items():
        if name in values:
            parts[place[0]][place[1]] = values[name]
    direct = parts.pop("")
    return direct | {section: _section(section, part) for section, part in parts.items()}


def _section(name: str, part: Mapping[str, Any]) -> Any:
    missing = [repr(needed.name) for needed in fields(SECTIONS[name]) if needed.name not in part]
    if missing:
        where = f"{SECTIONS[name].__name__} in types/sections/{name}.py"
        raise TypeError(f"{where} has no value for {', '.join(missing)}: the trainer's resolve does not set it")
    return SECTIONS[name](**part)


def neutral(name: str) -> tuple[Any, str]:
    """Return the value of a setting in a run that does not use its section, and the reason as text for the user."""
    section, _ = PLACES[name]
    return SETTINGS[name].neutral, SECTIONS[section].neutral_why if section else "there is none"
