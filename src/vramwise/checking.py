"""`check` and `fix`: the glue between reading, judging and writing configs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from vramwise.documents.document import parse_document
from vramwise.errors import ConfigError
from vramwise.facts import axolotl
from vramwise.files import config_files, read_config_bytes, write_atomic
from vramwise.resolving import Options, project_for, resolve, target_for
from vramwise.rules.base import Rule
from vramwise.rules.judge import judge
from vramwise.rules.selection import select_rules
from vramwise.rules.suppress import drop_suppressed
from vramwise.trainers.rulebook import ALL_RULES
from vramwise.types import Document, Finding, ModelSpec, RunSpec, Severity, Skipped, Target

WRONG_TYPE = "wrong-type"


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
    files = list(_files(paths))
    predicts = len(files) == 1 if options.predict is None else options.predict
    for path, error in files:
        yield FileReport(path=path, error=error) if error else _check_file(path, options, predicts)


def fix(
    paths: Sequence[str], options: Options | None = None, *, unsafe: bool = False, write: bool = True
) -> Iterator[FixReport]:
    """Mend every config under the paths; `write=False` leaves the files alone (standard input is never written)."""
    options = options or Options()
    for path, error in _files(paths):
        yield _unfixed(path, error) if error else _fix_file(path, options, unsafe=unsafe, write=write)


def check_document(
    document: Document, target: Target, rules: Sequence[Rule] = ALL_RULES, *, predicts: bool = False
) -> FileReport:
    """Judge a config that has been read, against a target; with `predicts` also what the run will need."""
    run = resolve(document, target)
    model = _known_model(run) if predicts else None
    memory = None
    if model is not None:
        from vramwise.forecasting import forecast

        memory = forecast(run, model)
    lacking = "model" if predicts and target.gpu is not None else "memory"
    findings, skipped = judge(run, memory, rules, lacking=lacking)
    findings = drop_suppressed(findings, document.text)
    if model is not None:
        from vramwise.forecasting import with_figures

        findings = with_figures(findings, document, run, model, lambda changed: resolve(changed, target))
    return FileReport(
        path=document.path,
        error=_type_error(findings, document.path),
        document=document,
        run=run,
        findings=findings,
        skipped=skipped,
    )


def _known_model(run: RunSpec) -> ModelSpec | None:
    """The model, where the card is named too: then the run can be predicted."""
    if run.target.gpu is None:
        return None
    from vramwise.forecasting import model_of

    return model_of(run, run.config.document.path)


def plan_for(path: str, options: Options) -> Plan:
    """How a file is judged: the options, the closest pyproject.toml, this machine."""
    project = project_for(path)
    severity = options.min_severity or project.min_severity
    return Plan(
        target=target_for(path, options),
        rules=select_rules(
            ALL_RULES,
            select=options.select or project.select,
            ignore=(*options.ignore, *project.ignore),
        ),
        report_from=Severity(severity or "info"),
        fail_from=Severity(severity or "warning"),
    )


def _check_file(path: str, options: Options, predicts: bool) -> FileReport:
    plan = plan_for(path, options)
    try:
        document = parse_document(path, read_config_bytes(path))
    except ConfigError as error:
        return FileReport(path=path, error=error)
    return _judge(document, plan, predicts=predicts)


def _judge(document: Document, plan: Plan, *, predicts: bool = False) -> FileReport:
    report = check_document(document, plan.target, plan.rules, predicts=predicts)
    shown = [found for found in report.findings if found.severity.rank >= plan.report_from.rank]
    return replace(report, findings=shown, fail_from=plan.fail_from)


def _fix_file(path: str, options: Options, *, unsafe: bool, write: bool) -> FixReport:
    from vramwise.fixing import mend

    plan = plan_for(path, options)
    try:
        data = read_config_bytes(path)
        before = parse_document(path, data)
        mending = mend(before, lambda document: _mendable(document, plan), unsafe=unsafe)
        after = mending.document
        if write and path != "-" and after.text != before.text:
            write_atomic(path, after.text.encode("utf-8"), expected=data)
    except ConfigError as error:
        return _unfixed(path, error)
    return FixReport(
        path=path,
        before=before,
        after=after,
        applied=mending.applied,
        refused=mending.refused,
        remaining=_judge(after, plan),
    )


def _mendable(document: Document, plan: Plan) -> Sequence[Finding]:
    """What may be mended. YAML with none of Axolotl's keys is somebody else's: a fix must not write into it."""
    if not axolotl.keys() & document.values.keys():
        return ()
    return _judge(document, plan).findings


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


def _type_error(findings: Sequence[Finding], path: str) -> ConfigError | None:
    """Values of a wrong type are findings, all of them; the first is also why the file as a whole is unusable."""
    wrong = [found for found in findings if found.rule == WRONG_TYPE]
    if not wrong:
        return None
    more = f" (and {len(wrong) - 1} more of a wrong type)" if len(wrong) > 1 else ""
    place = wrong[0].place
    return ConfigError(wrong[0].message + more, line=place.line, column=place.column, path=path)
