"""Suppression in the file itself: `# vramwise: ignore[rule-id] reason` on the line of the finding.

A finding about the file as a whole, such as a missing key, is suppressed by such a comment on any line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from vramwise.types import Finding

_COMMENT = re.compile(r"#\s*vramwise:\s*ignore\[([^\]]*)\]")


def drop_suppressed(findings: Iterable[Finding], text: str) -> list[Finding]:
    """Return the findings that no comment suppresses: on their line, or anywhere if about the file as a whole."""
    ignored = ignored_by_line(text)
    anywhere = frozenset[str]().union(*ignored.values())

    def silencing(found: Finding) -> frozenset[str]:
        return anywhere if found.line is None else ignored.get(found.line, frozenset())

    return [found for found in findings if found.rule not in silencing(found)]


def ignored_by_line(text: str) -> dict[int, frozenset[str]]:
    """Return line number → the rule ids that a comment on it names."""
    if "vramwise:" not in text:
        return {}
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    found = ((number, _COMMENT.findall(line)) for number, line in enumerate(lines, 1))
    return {number: frozenset().union(*map(_ids, names)) for number, names in found if names}


def _ids(names: str) -> frozenset[str]:
    return frozenset(name.strip() for name in names.split(","))
