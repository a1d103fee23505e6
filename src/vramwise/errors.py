"""Errors that users see. Each is one clear sentence; the CLI turns them into exit code 2."""

from __future__ import annotations

import os

# The rule id under which every bug in vramwise is reported.
INTERNAL_ERROR = "internal-error"
TRACEBACK_VARIABLE = "VRAMWISE_TRACEBACK"


class VramwiseError(Exception):
    """Something the user can fix: bad usage or unreadable input.

    `sentence` is the message on one line. `further` holds more lines, if there are several items to list.
    """

    def __init__(self, sentence: str, *further: str) -> None:
        super().__init__(sentence, *further)
        self.sentence = sentence
        self.further = further

    def __str__(self) -> str:
        return "\n".join([self.sentence, *self.further])


class ConfigError(VramwiseError):
    """A config that cannot be used, with the position where reading stopped (1-based; None if there is none).

    `message` is the sentence alone. `str()` adds the file and the position in front of it, if they are known.
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
    """A bug in vramwise, as one sentence; its cause is the original exception."""


def describe_internal_error(where: str, error: Exception) -> str:
    """Return one line that says what failed and what to report.

    Prints the traceback to stderr if the traceback variable is set.
    """
    if os.environ.get(TRACEBACK_VARIABLE):
        import traceback  # rarely wanted, and slow to load

        traceback.print_exception(error)
    said = " ".join(str(error).split())[:200]
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return (
        f"{where} failed with {what}. This is a bug in vramwise, not in your config: please report this line, the "
        f"config, and the output with {TRACEBACK_VARIABLE}=1"
    )
