"""The machine-readable formats of `check`, loaded on demand; `cli/check.py` writes text itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from vramwise.render.annotations import render_github, render_sarif
from vramwise.render.report_json import render_json
from vramwise.trainers.rulebook import all_rules
from vramwise.verbs.check import FileReport


def rendered(reports: Sequence[FileReport], output_format: str) -> list[str]:
    """Return the lines of the reports as json, sarif or github."""
    if output_format == "github":
        return list(render_github(reports))
    if output_format == "sarif":
        return render_sarif(reports, all_rules()).split("\n")
    return render_json(reports, indent=2 if sys.stdout.isatty() else None).split("\n")
