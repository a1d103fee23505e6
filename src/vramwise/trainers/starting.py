"""New configs: what is known about a run before it has a file, and what a trainer needs to write one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from vramwise.trainers.wishes import Wishes
from vramwise.types import RunSpec

Format = Literal["alpaca", "chat", "prompt", "pairs", "text"]
Precision = Literal["bf16", "fp16", "fp32"]
# A description of each format for users.
FORMATS: Mapping[Format, str] = {
    "alpaca": "alpaca (instruction, input, output)",
    "chat": "chat messages (messages or conversations)",
    "prompt": "prompt and completion",
    "pairs": "preference pairs (prompt, chosen, rejected)",
    "text": "plain text (text)",
}
# Used until the data is known; the rule about placeholders reports it.
PLACEHOLDER = "your/dataset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Data, described by its rows. `columns`: content of a row → name of the column.

    `kind`: json, csv or parquet. `turns`: prompts and answers are lists of messages. `shared_turns`: both answers
    repeat the whole conversation. `role`, `content`: the keys of a message. `speakers`: the roles of user and
    assistant.
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
        """Return the name of a column in the data."""
        return self.columns.get(name, name)

    @property
    def conversational(self) -> bool:
        """Whether samples are messages, which a chat template turns into text."""
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
    """Return a placeholder for data of a format, with its usual columns."""
    return Source(path=PLACEHOLDER, format=format, columns={name: name for name in _USUAL_COLUMNS[format]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A run that is to be written. `held_out`: the share of the data for evaluation, 0 for none."""

    wishes: Wishes
    source: Source
    held_out: float = 0.0
    epochs: int = 1
    learning_rate: float = 2e-4
    precision: Precision = "bf16"
    gpus: int = 1
    output_dir: str = "outputs"
    script: bool = False  # written as a script, which can map columns that no key maps

    @property
    def preference(self) -> bool:
        """Whether chosen answers are preferred to rejected ones (DPO)."""
        return self.source.format == "pairs"


class Starter(Protocol):
    """Writes new configs of a trainer: its module `start`.

    `GROUPS`: its keys in reading order, in groups; other keys go to the last group but one.
    """

    GROUPS: tuple[tuple[str, ...], ...]

    def start(self, start: Start) -> Mapping[str, Any]:
        """Return the values of a runnable config; raises VramwiseError if the trainer cannot read such data."""
        ...

    def launch(self, run: RunSpec, path: str) -> str:
        """Return the command that trains the config at `path`."""
        ...

    def companions(self, start: Start) -> Mapping[str, str]:
        """Return further files that the config needs, as path → text."""
        ...

    def requirements(self, start: Start) -> Sequence[str]:
        """Return what else must be true for it to start and is not known here.

        One sentence each, without a full stop.
        """
        ...


class ScriptWriter(Protocol):
    """Writes new scripts for a trainer that is also used from Python: its module `script`.

    `SCRIPT_FIRST`: it is used that way more than with a config.
    """

    SCRIPT_FIRST: bool

    def script(self, values: Mapping[str, Any], start: Start, comments: Mapping[str, str], head: Sequence[str]) -> str:
        """Return a Python script that trains what the config values say.

        `comments`: key → the reason for its value. `head`: the lines of its first comment.
        """
        ...

    def launch_script(self, run: RunSpec, path: str) -> str:
        """Return the command that trains the script at `path`."""
        ...
