"""What `fix` did: each change in a line, each refusal with its reason."""

from __future__ import annotations

from vramwise.mending import FixReport
from vramwise.render.outward import style


def describe_fix(report: FixReport, *, written: bool = True) -> list[str]:
    """The changes of one file, a line each, made or only proposed, and what was refused."""
    lines = []
    done = style("fixed" if written else "would fix", fg="green", bold=True)
    for found in report.applied:
        assert found.fix is not None
        lines.append(f"{style(report.path, bold=True)} {done} {style(found.rule, bold=True)}: {found.fix.title}")
    for found, reason in report.refused:
        kept = style("not fixed", fg="yellow", bold=True)
        lines.append(f"{style(report.path, bold=True)} {kept} {style(found.rule, bold=True)}: {reason}")
    return lines
