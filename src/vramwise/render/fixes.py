"""What `fix` did: each change in a line, each refusal with its reason."""

from __future__ import annotations

from click import style

from vramwise.checking import FixReport


def describe_fix(report: FixReport) -> str:
    """The changes of one file; empty where nothing was changed or refused."""
    lines = []
    for found in report.applied:
        assert found.fix is not None
        done = style("fixed", fg="green", bold=True)
        lines.append(f"{style(report.path, bold=True)} {done} {style(found.rule, bold=True)}: {found.fix.title}")
    for found, reason in report.refused:
        kept = style("not fixed", fg="yellow", bold=True)
        lines.append(f"{style(report.path, bold=True)} {kept} {style(found.rule, bold=True)}: {reason}")
    return "\n".join(lines)
