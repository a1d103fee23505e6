"""The patterns of `said.txt`: what people say of a failure and of their run."""

from __future__ import annotations

import re

from vramwise.bundled import bundled_text


def said(section: str) -> dict[str, re.Pattern[str]]:
    """Return the patterns of a section by name, in the file's order.

    Case does not matter, and Chinese words end those of letters.
    """
    _, _, rest = bundled_text("said.txt", __file__).partition(f"## {section}\n")
    joined: dict[str, list[str]] = {}
    for line in rest.partition("\n## ")[0].splitlines():
        if line and not line.startswith("#"):
            name, _, pattern = line.partition("\t")
            joined.setdefault(name, []).append(pattern)
    return {name: re.compile("|".join(patterns), re.IGNORECASE | re.ASCII) for name, patterns in joined.items()}
