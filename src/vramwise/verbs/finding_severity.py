"""The severity of findings on this card: wasted memory matters only if memory is scarce."""

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
    """Return the findings; warnings that concern only memory become notes if the run leaves ample memory free.

    `reserved` returns the memory that the run reserves as written. The fixes cost time, which is not worthwhile if
    memory is not scarce, so a note's fix is no longer applied by default.
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
    """Return the finding as a note whose fix is only applied on request."""
    fix = finding.fix and replace(finding.fix, safe=False)
    return replace(finding, severity=Severity.INFO, fix=fix)
