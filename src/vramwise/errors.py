"""The errors a user sees. Each is one clear sentence; the CLI turns them into exit code 2."""

from __future__ import annotations

import os

# The one name under which a fault of our own is reported, wherever it happens.
INTERNAL_ERROR = "internal-error"
TRACEBACK_VARIABLE = "VRAMWISE_TRACEBACK"


class VramwiseError(Exception):
    """Something the user can fix: bad usage or unreadable input.

    `sentence` says it on one line; `further` lines list what it is about, where that is more than one thing.
    """

    def __init__(self, sentence: str, *further: str) -> None:
        super().__init__(sentence, *further)
        self.sentence = sentence
        self.further = further

    def __str__(self) -> str:
        return "\n".join([self.sentence, *self.further])


class ConfigError(VramwiseError):
    """A config that cannot be used, with the place where reading stopped (1-based; None where there is no place).

    `message` is the sentence alone; as text it begins with the file and the place, where they are known.
    """

    def __init__(
        self, message: str, *, line: int | None = None, column: int | None = None, path: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
        self.path = path

    def __str__(self) -> str:
        if self.path is None:
            return self.message
        place = "" if self.line is None else f":{self.line}:{self.column or 1}"
        return f"{self.path}{place}: {self.message}"


class InternalError(VramwiseError):
    """A fault of our own, in one sentence; what raised it is its cause."""


def describe_internal_error(where: str, error: Exception) -> str:
    """What failed and what to send us, in one line; the traceback goes to stderr where its variable is set."""
    if os.environ.get(TRACEBACK_VARIABLE):
        import traceback  # rarely wanted, and slow to load

        traceback.print_exception(error)
    said = " ".join(str(error).split())[:200]
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return (
        f"{where} failed with {what}. This is a bug in vramwise, not in your config: please report this line, the "
        f"config, and the output with {TRACEBACK_VARIABLE}=1"
    )
