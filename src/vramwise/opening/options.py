"""The caller's options: machine, versions, rules and data. Shared by all verbs and interfaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from vramwise.types import ModelSpec
    from vramwise.variants.lengths import Data


class Text(str):
    """A config given as text, in parameters that also accept a path."""

    __slots__ = ()


class Live(Text):
    """A script with the values of live objects.

    `model`: its dimensions, as the object has them; None if they are unknown, and `model_missing` says why. `facts`:
    settings that no script says, each with the reason. `data`: the rows that its own loader draws. `notes`: what is
    assumed about the objects. `ends`: how long it trains is known. `limit_bytes`: what the
    card of this machine has left for it, if others hold a part.
    """

    model: ModelSpec | None = None
    model_missing: str = ""
    facts: Mapping[str, tuple[Any, str]] = {}
    data: Data | None = None
    notes: tuple[str, ...] = ()
    ends: bool = True
    limit_bytes: int | None = None


class Command(str):
    """A launch command such as `trl sft --model_name_or_path …`, in parameters that also accept a path."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options common to all commands. None means unset: the project's pyproject.toml decides, then this machine."""

    gpu: str | None = None
    gpus: int | None = None
    torch: str | None = None
    alloc_conf: str | None = None
    launcher: str | None = None
    # The options that a launch line passes to `accelerate launch`.
    accelerate: tuple[tuple[str, str], ...] = ()
    # The trainer of the config; None: recognised from its keys.
    trainer: str | None = None
    # Skip files that are not training configs, even unreadable ones: for hooks and folders.
    ours_only: bool = False
    # Read nothing but the text: no file it names, no project settings. For untrusted text.
    text_alone: bool = False
    # Versions of packages, each as `name==version`, and a file that pins more of them.
    versions: tuple[str, ...] = ()
    stack: str | None = None
    # Package folders to search for installed versions, if the trainer has its own environment.
    site: tuple[str, ...] = ()
    # Which rules, and from which severity up.
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    min_severity: str | None = None
    # Also report harmless issues: old spellings that still work, empty keys.
    pedantic: bool | None = None
    # A data file or folder to read row lengths from; None: local files named in the config; "": none.
    data: str | None = None
    # `name=value` for config keys or values a script leaves open; a script's arguments; which of its trainer calls.
    settings: tuple[str, ...] = ()
    script_args: str = ""
    call: int | None = None
    # How a launch line or shell script was read, for the first lines of an answer.
    notes: tuple[str, ...] = ()
    # The shell script that the run comes from, if its options are the config: versions are pinned beside it.
    home: str = ""
    # Predict the run and check its memory; None: if one file is checked, its model is known and a card is given.
    predict: bool | None = None


class Machine(TypedDict, total=False):
    """The keywords of every function of the package: fields of Options about the machine, versions and trainer."""

    gpu: str | None
    gpus: int | None
    torch: str | None
    alloc_conf: str | None
    launcher: str | None
    trainer: str | None
    versions: Sequence[str]
    stack: str | None
    site: Sequence[str]


class Reading(Machine, total=False):
    """The keywords of functions that read a config: fields of Options about the config, its data and its findings."""

    ours_only: bool
    text_alone: bool
    select: Sequence[str]
    ignore: Sequence[str]
    min_severity: str | None
    pedantic: bool | None
    data: str | None
    settings: Sequence[str]
    script_args: str
    call: int | None
    predict: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """What `fit` may change, what it must keep, and how much memory must stay free."""

    # Changes to permit that affect training: see `variants.axes.ALLOW`.
    allow: tuple[str, ...] = ()
    # Config keys that must not change.
    keep: tuple[str, ...] = ()
    # Memory to keep free; None: by how much similar measured runs exceeded their prediction.
    margin_bytes: int | None = None
    limit_bytes: int | None = None
    # Find the largest value of this key instead of the fastest run.
    maximise: str | None = None
    model: str | None = None
    online: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictOptions:
    """What to predict: engine, model, data, number of steps and memory limit."""

    # "transformers": the embedded engine of `vramwise train`. None: the trainer that the file belongs to.
    engine: str | None = None
    model: str | None = None
    # Fetch the config.json of unknown models from the hub, unless HF_HUB_OFFLINE is set.
    online: bool = True
    steps: int | None = None
    lengths: str | None = None
    eval_lengths: str | None = None
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOptions:
    """What a new config trains, and with which data. None: `new` decides."""

    model: str
    # "auto": the best of full, lora and qlora that fits.
    method: str = "auto"
    # A data file or folder; without one, `data_format` is the format of data that is added later.
    data: str | None = None
    data_format: str | None = None
    # Samples that an optimizer step sees.
    batch: int = 16
    sequence_len: int | None = None
    rank: int = 16
    epochs: int | None = None
    # Write a Python script (True) or a config (False); None: what the trainer is mostly used with.
    script: bool | None = None
    # Where the config will be, for the command that trains it.
    path: str | None = None
    online: bool = True
