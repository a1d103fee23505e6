"""What `fix` did: each change in a line, each refusal with its reason."""

from __future__ import annotations

from click import style

from vramwise.judging import FixReport


def describe_fix(report: FixReport, *, written: bool = True) -> str:
    """The changes of one file, made or only proposed; empty where there are none and nothing was refused."""
    lines = []
    done = style("fixed" if written else "would fix", fg="green", bold=True)
    for found in report.applied:
        assert found.fix is not None
        lines.append(f"{style(report.path, bold=True)} {done} {style(found.rule, bold=True)}: {found.fix.title}")
    for found, reason in report.refused:
        kept = style("not fixed", fg="yellow", bold=True)
        lines.append(f"{style(report.path, bold=True)} {kept} {style(found.rule, bold=True)}: {reason}")
    return "\n".join(lines)
