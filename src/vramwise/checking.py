"""`check` and `fix`: the glue between reading, judging and writing configs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from vramwise.allocator.settings import parse_settings
from vramwise.config.axolotl import resolve_axolotl
from vramwise.config.axolotl_values import axolotl_config
from vramwise.config.document import parse_document
from vramwise.config.files import config_files, read_config_bytes, write_atomic
from vramwise.config.project import ProjectSettings, project_settings
from vramwise.config.sidecar import read_deepspeed_file
from vramwise.errors import ConfigError, VramwiseError
from vramwise.rules import RULES
from vramwise.rules.base import Rule
from vramwise.rules.judge import judge
from vramwise.rules.selection import select_rules
from vramwise.rules.suppress import drop_suppressed
from vramwise.targets import make_target
from vramwise.types import Document, Finding, RunSpec, Severity, Skipped, Target

WRONG_TYPE = "wrong-type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the caller asks for; None = not said, then the project's pyproject.toml decides, then this machine."""

    gpu: str | None = None
    gpus: int | None = None
    torch: str | None = None
    alloc_conf: str | None = None
    launcher: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    min_severity: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What was found in one file. With an `error` it is unusable: wrong types leave findings, other errors nothing."""

    path: str
    error: ConfigError | None = None
    document: Document | None = None
    run: RunSpec | None = None
    findings: Sequence[Finding] = field(default_factory=tuple)
    skipped: Sequence[Skipped] = field(default_factory=tuple)
    # From this severity up a finding makes the command fail.
    fail_from: Severity = Severity.WARNING

    @property
    def failing(self) -> int:
        """How many findings are at or above the severity that counts."""
        return sum(found.severity.rank >= self.fail_from.rank for found in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixReport:
    """What `fix` did to one file: the text before and after, what was mended, refused, and what remains."""

    path: str
    before: Document | None
    after: Document | None
    applied: Sequence[Finding]
    refused: Sequence[tuple[Finding, str]]
    remaining: FileReport

    @property
    def changed(self) -> bool:
        """Whether the text differs."""
        return self.before is not None and self.after is not None and self.before.text != self.after.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one folder's files are judged."""

    target: Target
    rules: Sequence[Rule]
    report_from: Severity
    fail_from: Severity


def check(paths: Sequence[str], options: Options | None = None) -> Iterator[FileReport]:
    """Judge every config under the paths ("-" is standard input, a folder means every YAML file in it)."""
    options = options or Options()
    for path, error in _files(paths):
        yield FileReport(path=path, error=error) if error else _check_file(path, options)


def fix(
    paths: Sequence[str], options: Options | None = None, *, unsafe: bool = False, write: bool = True
) -> Iterator[FixReport]:
    """Mend every config under the paths; `write=False` leaves the files alone (standard input is never written)."""
    options = options or Options()
    for path, error in _files(paths):
        yield _unfixed(path, error) if error else _fix_file(path, options, unsafe=unsafe, write=write)


def check_document(document: Document, target: Target, rules: Sequence[Rule] = RULES) -> FileReport:
    """Judge a config that has been read, against a target."""
    run = resolve(document, target)
    findings, skipped = judge(run, None, rules)
    findings = drop_suppressed(findings, document.text)
    return FileReport(
        path=document.path,
        error=_type_error(findings),
        document=document,
        run=run,
        findings=findings,
        skipped=skipped,
    )


def resolve(document: Document, target: Target) -> RunSpec:
    """What this config will really do on this target."""
    config = axolotl_config(document)
    return resolve_axolotl(config, target, read_deepspeed_file(config))


def read_run(path: str, options: Options) -> tuple[Document, RunSpec]:
    """One config, read and resolved; a ConfigError where it cannot be used."""
    plan = plan_for(path, options)
    document = parse_document(path, read_config_bytes(path))
    return document, resolve(document, plan.target)


def plan_for(path: str, options: Options) -> Plan:
    """How a file is judged: the options, the closest pyproject.toml, this machine."""
    return _plan("." if path == "-" else str(Path(path).parent), options)


def _check_file(path: str, options: Options) -> FileReport:
    plan = plan_for(path, options)
    try:
        document = parse_document(path, read_config_bytes(path))
    except ConfigError as error:
        return FileReport(path=path, error=error)
    return _judge(document, plan)


def _judge(document: Document, plan: Plan) -> FileReport:
    report = check_document(document, plan.target, plan.rules)
    shown = [found for found in report.findings if found.severity.rank >= plan.report_from.rank]
    return replace(report, findings=shown, fail_from=plan.fail_from)


def _fix_file(path: str, options: Options, *, unsafe: bool, write: bool) -> FixReport:
    from vramwise.fixing import mend

    plan = plan_for(path, options)
    try:
        data = read_config_bytes(path)
        before = parse_document(path, data)
    except ConfigError as error:
        return _unfixed(path, error)
    mending = mend(before, lambda document: _judge(document, plan).findings, unsafe=unsafe)
    after = mending.document
    if write and path != "-" and after.text != before.text:
        write_atomic(path, after.text.encode("utf-8"), expected=data)
    return FixReport(
        path=path,
        before=before,
        after=after,
        applied=mending.applied,
        refused=mending.refused,
        remaining=_judge(after, plan),
    )


def _unfixed(path: str, error: ConfigError) -> FixReport:
    remaining = FileReport(path=path, error=error)
    return FixReport(path=path, before=None, after=None, applied=(), refused=(), remaining=remaining)


def _files(paths: Sequence[str]) -> Iterator[tuple[str, ConfigError | None]]:
    """Every file the paths name, once; a path that names none comes with its error, and the others go on."""
    seen: set[str] = set()
    for path in paths:
        try:
            found = config_files([path])
        except ConfigError as error:
            yield path, error
            continue
        for name in found:
            if name not in seen:
                seen.add(name)
                yield name, None


def _type_error(findings: Sequence[Finding]) -> ConfigError | None:
    """Values of a wrong type are findings, all of them; the first is also why the file as a whole is unusable."""
    wrong = [found for found in findings if found.rule == WRONG_TYPE]
    if not wrong:
        return None
    more = f" (and {len(wrong) - 1} more of a wrong type)" if len(wrong) > 1 else ""
    return ConfigError(wrong[0].message + more, line=wrong[0].place.line, column=wrong[0].place.column)


@lru_cache(maxsize=256)
def _plan(folder: str, options: Options) -> Plan:
    project = project_settings(Path(folder))
    severity = options.min_severity or project.min_severity
    return Plan(
        target=_target(options, project),
        rules=select_rules(
            RULES,
            select=options.select or project.select,
            ignore=(*options.ignore, *project.ignore),
        ),
        report_from=Severity(severity or "info"),
        fail_from=Severity(severity or "warning"),
    )


def _target(options: Options, project: ProjectSettings) -> Target:
    alloc_conf = options.alloc_conf if options.alloc_conf is not None else project.alloc_conf
    try:
        target = make_target(
            gpu=options.gpu or project.gpu,
            gpus=options.gpus or project.gpus,
            torch=options.torch or project.torch,
            alloc_conf=alloc_conf,
            launcher=options.launcher or project.launcher or "cli",
        )
        if alloc_conf:
            parse_settings(alloc_conf, target.torch)  # a typo is an error here, as it would be in torch
    except VramwiseError as error:
        raise VramwiseError(f"{error} (see also {project.path})" if project.path else str(error)) from error
    return target
