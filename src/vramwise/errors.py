"""The errors a user sees. Each is one clear sentence; the CLI turns them into exit code 2."""

from __future__ import annotations


class VramwiseError(Exception):
    """Something the user can mend: bad usage or unreadable input.

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
