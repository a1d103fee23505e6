"""What a caller asks for: the machine, the versions, the rules, the data. Shared by every verb and every door."""

from __future__ import annotations

from dataclasses import dataclass


class Text(str):
    """A config's own text where a path could stand as well."""

    __slots__ = ()


class Command(str):
    """A launch line where a path could stand as well: `trl sft --model_name_or_path …`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the caller asks for; None = not said, then the project's pyproject.toml decides, then this machine."""

    gpu: str | None = None
    gpus: int | None = None
    torch: str | None = None
    alloc_conf: str | None = None
    launcher: str | None = None
    # Whose config it is, where that must not be left to recognition.
    trainer: str | None = None
    # Files that cannot be read and do not look like a training config are left alone: for hooks and folders.
    ours_only: bool = False
    # The text is all that is read: no file that it names, nor the settings of a project around. For strangers' texts.
    text_alone: bool = False
    # Versions of packages, each as `name==version`, and a file that pins more of them.
    versions: tuple[str, ...] = ()
    stack: str | None = None
    # Folders of packages to look in for installed versions, where the trainer has an environment of its own.
    site: tuple[str, ...] = ()
    # Which rules, and from which severity up.
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    min_severity: str | None = None
    # Also what is true but of no consequence: old spellings that work, empty keys that nobody reads.
    pedantic: bool | None = None
    # A data file or folder whose rows' lengths are taken; None: the local files that the config names; "": none.
    data: str | None = None
    # `name=value`: keys of a config, or what a script leaves open; a script's command line; which of its trainings.
    settings: tuple[str, ...] = ()
    script_args: str = ""
    call: int | None = None
    # Predict the run and judge what it needs; None: where one file is checked, its model is known and a card is named.
    predict: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """What `fit` may change beyond what keeps the training result, what it may not, and how much must stay free."""

    # Words that open more: `variants.axes.ALLOW` says what each permits.
    allow: tuple[str, ...] = ()
    # Keys of the config that stay as they are.
    keep: tuple[str, ...] = ()
    # What must stay free; None: what measured runs like it took more than was predicted.
    margin_bytes: int | None = None
    limit_bytes: int | None = None
    # The key whose largest value is asked for, in place of the fastest run.
    maximise: str | None = None
    model: str | None = None
    online: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictOptions:
    """What to predict: which engine and model, which data, how long, under which limit."""

    # "transformers": the embedded engine of `vramwise train`. None: the trainer that the file belongs to.
    engine: str | None = None
    model: str | None = None
    # Ask the hub for the config.json of a model that is not known here; HF_HUB_OFFLINE forbids it as well.
    online: bool = True
    steps: int | None = None
    lengths: str | None = None
    eval_lengths: str | None = None
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOptions:
    """What a new config is to train, and on what. None: `new` decides."""

    model: str
    # "auto": the best of full, lora and qlora that fits.
    method: str = "auto"
    # A data file or folder; without one, the format of data that is named later.
    data: str | None = None
    data_format: str | None = None
    # Samples that an optimizer step sees.
    batch: int = 16
    sequence_len: int | None = None
    rank: int = 16
    epochs: int | None = None
    # A Python script in place of a config.
    script: bool = False
    # Where the config will be, for the command that trains it.
    path: str | None = None
    online: bool = True
