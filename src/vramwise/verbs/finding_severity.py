"""How severe findings are on this card: wasted memory matters only where there is little of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from vramwise.rules.base import Rule
from vramwise.rules.room import has_ample_room
from vramwise.types import Finding, Severity

Reserved = Callable[[], int | None]


def weighed(
    findings: Sequence[Finding], rules: Mapping[str, Rule], reserved: Reserved, capacity_bytes: int | None
) -> list[Finding]:
    """The findings; warnings about memory alone become notes where the run, as written, leaves room to spare.

    `reserved` tells what the run reserves as it is written. The remedies have a price in time, which nobody pays for
    memory that is not missed: a note's remedy is made on request.
    """
    memory_alone = {rule.id for rule in rules.values() if rule.costs_memory}
    light = [found for found in findings if found.rule in memory_alone and found.severity is Severity.WARNING]
    if not light or not capacity_bytes:
        return list(findings)
    needed = reserved()
    if needed is None or not has_ample_room(needed, capacity_bytes):
        return list(findings)
    return [lighter(found) if found in light else found for found in findings]


def lighter(finding: Finding) -> Finding:
    """The finding as a note, its remedy on request."""
    fix = finding.fix and replace(finding.fix, safe=False)
    return replace(finding, severity=Severity.INFO, fix=fix)
