"""The server's log on standard error: what came with a request is shown, and cannot act on the terminal."""

from __future__ import annotations

import logging
from typing import Any

from vramwise.render.outward import outward


class VisibleFormatter(logging.Formatter):
    """Formats a record with every control character escaped: the message on one line, tracebacks line by line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The message, on one line."""
        return outward(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """The traceback, whose lines stay lines."""
        return "\n".join(map(outward, super().formatException(ei).split("\n")))


def log_visibly() -> None:
    """Send the log of every library to standard error through VisibleFormatter."""
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleFormatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
