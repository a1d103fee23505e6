"""The packages whose releases are known, and how each is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

import argument_meanings
import generate_arguments
import generate_axolotl_facts
import generate_llamafactory
import generate_trl_facts
import generate_unsloth_facts
import llamafactory_meanings
import trl_meanings
import unsloth_meanings
from histories import Known
from registry import Archive

_LIBRARIES = ("torch", "transformers", "accelerate", "peft", "bitsandbytes", "liger-kernel")


def _nothing(archive: Archive) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package: where its facts go, from which release on, what they are read with, and what a person must read."""

    name: str
    title: str
    folder: str  # below trainers/
    first: str
    facts: Callable[..., dict[str, Any]]
    meanings: Mapping[str, str]
    installs: tuple[str, ...]
    # What else is written about a release into releases.json.
    release: Callable[[Archive], dict[str, Any]] = _nothing
    # Extras whose packages count, because people install with them.
    extras: tuple[str, ...] = ()
    # Whether everything that it asks for has a wheel: only then pip can say what it installs without running code.
    wheels_alone: bool = True
    # Packages that its facts are read from besides.
    beside: tuple[str, ...] = ()
    # Sections of the facts that only the newest release decides.
    constant: tuple[str, ...] = ("memory",)
    # The page of docs/ that says how it decides memory.
    page: str
    # The code that decides memory, as beginnings of paths.
    decides: tuple[str, ...] = ()


PACKAGES = (
    Package(
        name="transformers",
        page="scripts.md",
        title="transformers",
        folder="arguments",
        first="4.31.0",
        facts=generate_arguments.facts_of,
        meanings=argument_meanings.MEANINGS,
        installs=("torch", "accelerate", "peft", "bitsandbytes", "liger-kernel"),
        decides=(
            *("transformers/training_args.py", "transformers/trainer", "transformers/modeling_utils.py"),
            *("transformers/core_model_loading.py", "transformers/loss/", "transformers/modeling_layers.py"),
            *("transformers/masking_utils.py", "transformers/integrations/", "transformers/quantizers/"),
        ),
    ),
    Package(
        name="trl",
        page="trl.md",
        title="TRL",
        folder="trl",
        first="0.4.2",
        facts=generate_trl_facts.facts_of,
        meanings=trl_meanings.MEANINGS,
        installs=_LIBRARIES,
        beside=("accelerate",),
        decides=("trl/trainer/", "trl/models/", "trl/data_utils.py", "trl/scripts/", "trl/experimental/orpo/"),
    ),
    Package(
        name="llamafactory",
        page="llamafactory.md",
        title="LLaMA-Factory",
        folder="llamafactory",
        first="0.7.1",
        facts=generate_llamafactory.facts_of,
        meanings=llamafactory_meanings.MEANINGS,
        installs=(*_LIBRARIES, "trl", "deepspeed"),
        extras=("torch", "metrics", "deepspeed", "bitsandbytes", "liger-kernel"),
        decides=("llamafactory/hparams/", "llamafactory/model/", "llamafactory/train/", "llamafactory/data/"),
    ),
    Package(
        name="axolotl",
        page="axolotl.md",
        title="Axolotl",
        folder="axolotl",
        first="0.18.0",
        facts=generate_axolotl_facts.facts_of,
        meanings={},
        installs=("transformers", "torch"),
        release=generate_axolotl_facts.release_of,
        wheels_alone=False,
        beside=("transformers",),
        constant=(),
        decides=(
            *("axolotl/utils/schemas/", "axolotl/integrations/", "axolotl/utils/config/", "axolotl/core/builders/"),
            *("axolotl/core/trainers/", "axolotl/loaders/", "axolotl/monkeypatch/", "axolotl/kernels/"),
        ),
    ),
    Package(
        name="unsloth",
        page="unsloth.md",
        title="Unsloth",
        folder="unsloth",
        first="2024.8",
        facts=generate_unsloth_facts.facts_of,
        meanings=unsloth_meanings.MEANINGS,
        installs=(*_LIBRARIES, "trl", "xformers", "unsloth-zoo"),
        wheels_alone=False,
        constant=("memory", "dynamic"),
        decides=("unsloth/models/", "unsloth/kernels/", "unsloth/trainer.py", "unsloth_cli/"),
    ),
)


def constants(package: Package, known: Known) -> dict[str, Any]:
    """The facts that are written once, for every release: what keys mean, and what only the newest release decides."""
    newest = known.facts[max(known.facts, key=Version)]
    kept = {name: newest[name] for name in package.constant if name in newest}
    return {**kept, "memory": dict(package.meanings)} if package.meanings else kept
