"""A program that uses the package, for mypy alone: its types reach other people's code.

Never run. mypy is strict, so a `type: ignore` that is not needed is an error: with untyped verbs this file would fail.
"""

from pathlib import Path

import vramwise
from vramwise import Finding, Severity


def errors_in(path: Path) -> list[Finding]:
    reports = vramwise.check(path, gpu="t4")
    return [found for report in reports for found in report.findings if found.severity is Severity.ERROR]


def every_verb() -> tuple[bool, int, list[str], str, str, int, int]:
    fixed = vramwise.fix(["a.yml", Path("b.yml")], write=False)[0].changed
    needed = vramwise.predict("c.yml", gpu="24GB", changes=["micro_batch_size=1"]).needs.peak_reserved_bytes
    ids = [rule.id for rule in vramwise.rules()]
    sentence = vramwise.diagnose("train.log", config="c.yml").sentence
    replayed = vramwise.replay("x.pickle", settings="").peak_reserved_bytes
    code = vramwise.train("c.yml", resume=True)
    return fixed, needed, ids, vramwise.explain("batch-size-set").title, sentence, replayed, code


def fitted(path: Path) -> str | None:
    best = vramwise.fit(path, gpu="t4", allow=["qlora"], margin_bytes=2**30).best
    return None if best is None or best.document is None else best.document.text


def mistakes() -> None:
    vramwise.check(3)  # type: ignore[arg-type]
    vramwise.diagnose("train.log", konfig="c.yml")  # type: ignore[call-arg]
    vramwise.predict("c.yml", gpu=24)  # type: ignore[arg-type]
    vramwise.rules()[0].no_such_field  # type: ignore[attr-defined]  # noqa: B018
    vramwise.train("c.yml").upper()  # type: ignore[attr-defined]
