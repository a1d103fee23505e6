"""The server's log on standard error: content of requests is shown, but cannot control the terminal."""

from __future__ import annotations

import logging
from typing import Any

from vramwise.render.outward import outward


class VisibleFormatter(logging.Formatter):
    """Formats a record with every control character escaped: the message on one line, tracebacks line by line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the message on one line."""
        return outward(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Return the traceback with its line breaks."""
        return "\n".join(map(outward, super().formatException(ei).split("\n")))


def log_visibly() -> None:
    """Send the log of every library to standard error through VisibleFormatter."""
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleFormatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
