"""A new config: what is known of a run before it has a file, and what a trainer adds to write one that can be run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from vramwise.trainers.wishes import Wishes
from vramwise.types import RunSpec

Format = Literal["alpaca", "chat", "prompt", "pairs", "text"]
Precision = Literal["bf16", "fp16", "fp32"]
# What each format is, as a user knows it.
FORMATS: Mapping[Format, str] = {
    "alpaca": "alpaca (instruction, input, output)",
    "chat": "chat messages (messages or conversations)",
    "prompt": "prompt and completion",
    "pairs": "preference pairs (prompt, chosen, rejected)",
    "text": "plain text (text)",
}
# Stands where the data is not known yet; the rule about placeholders names it.
PLACEHOLDER = "your/dataset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Data as its rows show it. `columns`: what is in a row → the column's name.

    `kind`: json, csv or parquet. `turns`: prompts and answers are lists of messages. `shared_turns`: both answers
    repeat the whole conversation. `role`, `content`: the keys of a message; `speakers`: the roles user and assistant.
    """

    path: str
    format: Format
    kind: str = "json"
    folder: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    turns: bool = False
    shared_turns: bool = False
    role: str = "role"
    content: str = "content"
    speakers: tuple[str, str] = ("user", "assistant")

    def column(self, name: str) -> str:
        """The column's name in the data."""
        return self.columns.get(name, name)

    @property
    def conversational(self) -> bool:
        """Whether samples are messages, which a chat template makes text of."""
        return self.format == "chat" or self.turns

    @property
    def placeholder(self) -> bool:
        """Whether no data is named yet."""
        return self.path == PLACEHOLDER


_USUAL_COLUMNS: Mapping[Format, tuple[str, ...]] = {
    "alpaca": ("instruction", "input", "output"),
    "chat": ("messages",),
    "prompt": ("prompt", "completion"),
    "pairs": ("prompt", "chosen", "rejected"),
    "text": ("text",),
}


def unnamed(format: Format) -> Source:  # noqa: A002 - the word for it
    """A placeholder for data of a format, with its usual columns."""
    return Source(path=PLACEHOLDER, format=format, columns={name: name for name in _USUAL_COLUMNS[format]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A run that is to be written down. `held_out`: the share of the data that is evaluated on, 0 for none."""

    wishes: Wishes
    source: Source
    held_out: float = 0.0
    epochs: int = 1
    learning_rate: float = 2e-4
    precision: Precision = "bf16"
    gpus: int = 1
    output_dir: str = "outputs"
    script: bool = False  # to be written as a script, which can map columns that no key maps

    @property
    def preference(self) -> bool:
        """Whether chosen answers are preferred to rejected ones: DPO."""
        return self.source.format == "pairs"


class Starter(Protocol):
    """How new configs of a trainer are written: its module `start`.

    `GROUPS`: its keys in the order in which a person reads them, in groups; other keys go to the last group but one.
    """

    GROUPS: tuple[tuple[str, ...], ...]

    def start(self, start: Start) -> Mapping[str, Any]:
        """The values of a config that can be run; a VramwiseError where the trainer does not read such data."""
        ...

    def launch(self, run: RunSpec, path: str) -> str:
        """The command that trains the config at `path`."""
        ...

    def companions(self, start: Start) -> Mapping[str, str]:
        """Files that the config needs beside it, by their paths, with their text."""
        ...

    def requirements(self, start: Start) -> Sequence[str]:
        """What else must be true for it to start, and is not known here: a sentence each, without its end."""
        ...


@runtime_checkable
class Starts(Protocol):
    """A trainer that writes new configs."""

    @property
    def name(self) -> str:
        """Its short name."""
        ...

    def starter(self) -> Starter:
        """What writes them."""
        ...


@runtime_checkable
class WritesScripts(Protocol):
    """A trainer that is also used from Python. `script_first`: it is rather used so than with a config."""

    script_first: bool

    def script(self, values: Mapping[str, Any], start: Start, comments: Mapping[str, str], head: Sequence[str]) -> str:
        """A Python script that trains what the values of a config say.

        `comments`: key → why it has its value; `head`: the lines of its first comment.
        """
        ...

    def launch_script(self, run: RunSpec, path: str) -> str:
        """The command that trains the script at `path`."""
        ...
