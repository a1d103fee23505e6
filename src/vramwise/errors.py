"""The errors a user sees. Each is one clear sentence; the CLI turns them into exit code 2."""

from __future__ import annotations


class VramwiseError(Exception):
    """Something the user can mend: bad usage or unreadable input."""


class ConfigError(VramwiseError):
    """A config that cannot be read, with the place where reading stopped (1-based; None where there is no place)."""

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
