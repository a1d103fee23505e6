"""`check`: the findings of the rules about a Subject, with its prediction.

Severity is that on this card: wasted memory matters only if memory is scarce.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vramwise.errors import INTERNAL_ERROR, ConfigError, VramwiseError, describe_internal_error
from vramwise.notebook.displayed import Displayed
from vramwise.opening.files import config_files
from vramwise.opening.options import Options
from vramwise.opening.sources import NotOurs, Source, path_of, started
from vramwise.opening.subject import Subject, open_subject
from vramwise.opening.targets import project_for, target_for
from vramwise.rules.base import Rule
from vramwise.rules.discovery import select_rules
from vramwise.rules.judge import drop_suppressed, internal_error, judge
from vramwise.rules.room import has_ample_room
from vramwise.timeline import MemoryReport
from vramwise.trainers.base import Trainer
from vramwise.trainers.recognise import Foreign
from vramwise.trainers.registry import DEFAULT, trainer_named
from vramwise.trainers.rulebook import all_rules, rules_for
from vramwise.types import START, Document, Finding, RunSpec, Severity, Skipped

if TYPE_CHECKING:
    from vramwise.variants.prediction import Prediction

# Not a rule about the config: it reports that the run could not be predicted.
NOT_PREDICTED = "not-predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport(Displayed):
    """The result of checking one file. With an `error`, the file is unusable.

    Values of a wrong type still come with findings; other errors do not.
    """

    path: str
    error: ConfigError | None = None
    # What the file is if it is not a training config; it was then skipped.
    foreign: Foreign | None = None
    document: Document | None = None
    run: RunSpec | None = None
    findings: Sequence[Finding] = field(default_factory=tuple)
    skipped: Sequence[Skipped] = field(default_factory=tuple)
    # The prediction behind the findings about memory; None if there is none, and `not_predicted` says why.
    prediction: Prediction | None = None
    not_predicted: str = ""
    # See Verdict.
    rows_up_to: int | None = None
    # Rules whose remedies were not predicted, because that would take too long.
    without_figures: tuple[str, ...] = ()
    # Parts of its data that could not be read or exceeded a limit.
    unread: tuple[str, ...] = ()
    # Findings of at least this severity make the command fail.
    fail_from: Severity = Severity.WARNING

    def lean(self) -> FileReport:
        """Return the report without the events of its prediction, to save memory when many files are checked."""
        return self if self.prediction is None else replace(self, prediction=self.prediction.lean())

    @property
    def failing(self) -> int:
        """The number of findings that make the command fail."""
        return sum(found.severity.rank >= self.fail_from.rank for found in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which rules apply, which findings are reported, and which make the command fail."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    report_from: Severity = Severity.INFO
    fail_from: Severity = Severity.WARNING
    predicts: bool = False
    # Whether to predict remedies too, for their figures and for the severity of findings on this card.
    figures: bool = True
    pedantic: bool = False

    def asked_in_full(self) -> frozenset[str]:
        """Return the rules that also report harmless issues: all with `pedantic`, else those that are selected."""
        if self.pedantic or self.select:
            return frozenset(rule.id for rule in select_rules(all_rules(), select=self.select))
        return frozenset()

    def rules(self, trainer: Trainer) -> list[Rule]:
        """Return the rules that apply to a trainer's file."""
        mine = rules_for(trainer)
        if not self.select and not self.ignore:
            return list(mine)
        wanted = {rule.id for rule in select_rules(all_rules(), select=self.select, ignore=self.ignore)}
        return [rule for rule in mine if rule.id in wanted]


def policy_for(path: str, options: Options, *, predicts: bool) -> Policy:
    """Return the policy for a file, from the options and the closest pyproject.toml."""
    project = project_for(path, options)
    severity = options.min_severity or project.min_severity
    return Policy(
        select=tuple(options.select or project.select),
        ignore=(*options.ignore, *project.ignore),
        report_from=Severity(severity or "info"),
        fail_from=Severity(severity or "warning"),
        predicts=predicts if options.predict is None else options.predict,
        pedantic=project.pedantic if options.pedantic is None else options.pedantic,
    )


def check(paths: Sequence[str], options: Options | None = None) -> Iterator[FileReport]:
    """Check every config under the paths ("-" is standard input; a folder means every config in it)."""
    options = options or Options()
    refuse_mistakes(options)
    files = list(named_files(paths))
    for path, error in files:
        asked = options if path in paths else replace(options, ours_only=True)
        report = FileReport(path=path, error=error) if error else check_source(path, asked, alone=len(files) == 1)
        yield report if len(files) == 1 else report.lean()


def refuse_mistakes(options: Options) -> None:
    """Raise VramwiseError for an unknown card, version or rule before any file is read."""
    if options.select or options.ignore:
        select_rules(all_rules(), select=options.select, ignore=options.ignore)
    target_for(".", options, trainer_named(options.trainer).name if options.trainer else DEFAULT)


def check_source(source: Source, options: Options, *, alone: bool) -> FileReport:
    """Check one config. `alone`: it is the only one, so a prediction is worth its time."""
    path = path_of(source)
    try:
        source, options = started(source, options)
        path = path_of(source)
        policy = policy_for(path, options, predicts=alone)
        subject = with_its_data(open_subject(source, options), options, policy)
        return with_command(check_subject(subject, policy), subject)
    except NotOurs as error:
        return FileReport(path=path, foreign=error.foreign)
    except ConfigError as error:
        return FileReport(path=path, error=error)
    except VramwiseError:
        raise
    except Exception as error:
        return FileReport(path=path, error=ConfigError(describe_internal_error("check", error), path=path))


def with_its_data(subject: Subject, options: Options, policy: Policy) -> Subject:
    """Return the subject with the lengths of its data, if a prediction needs them."""
    if not policy.predicts or subject.target.gpu is None or subject.model is None:
        return subject
    return subject.with_data(options.data)


def check_subject(subject: Subject, policy: Policy | None = None) -> FileReport:
    """Every finding about a subject."""
    policy = policy or Policy()
    prediction, why, notices = _predicted(subject) if policy.predicts else (None, "not requested: use --predict", [])
    lacking = "model" if policy.predicts and subject.target.gpu is not None and not notices else "memory"
    findings, skipped = judge(
        subject.run,
        _memory(prediction),
        policy.rules(subject.trainer),
        subject.trainer.spell,
        lacking=lacking,
        pedantic=policy.asked_in_full(),
    )
    findings = drop_suppressed(findings, subject.document.text)
    without: tuple[str, ...] = ()
    rows = None
    if prediction is not None and policy.figures:
        findings, without, rows = _with_figures(findings, subject)
    findings = [*notices, *findings]
    error = _type_error(findings, subject) or _internal_error(findings, subject.document.path)
    return FileReport(
        path=subject.document.path,
        error=error,
        document=subject.document,
        run=subject.run,
        findings=[found for found in findings if found.severity.rank >= policy.report_from.rank],
        skipped=skipped,
        prediction=prediction,
        not_predicted=why,
        rows_up_to=rows,
        without_figures=without,
        unread=subject.data.unread,
        fail_from=policy.fail_from,
    )


def with_command(report: FileReport, subject: Subject) -> FileReport:
    """Return the report with the `fit` command appended to the finding that the run does not fit."""
    of_fit = {rule.id for rule in rules_for(subject.trainer) if rule.misfit}
    misfits = [found for found in report.findings if found.rule in of_fit and found.severity is Severity.ERROR]
    if not misfits or report.prediction is None:
        return report
    from vramwise.verbs.fitting.ways_out import fit_command  # late: only for runs that do not fit

    remedy = f"; `{fit_command(subject)}` searches for a variant that fits"
    said = [replace(found, message=found.message + remedy) if found in misfits else found for found in report.findings]
    return replace(report, findings=said)


def prediction_for(subject: Subject) -> tuple[Prediction | None, str]:
    """Return the prediction behind a verdict, or why there is none. Shared by `check`, `fix` and `predict`."""
    if subject.target.gpu is None:
        return None, "no card is named"
    if subject.model is None:
        return None, subject.model_missing
    try:
        return subject.prediction(), ""
    except VramwiseError as error:
        return None, str(error)


def _predicted(subject: Subject) -> tuple[Prediction | None, str, list[Finding]]:
    """Return the prediction, or the reason and a notice if there is none.

    The findings of the other rules are reported either way.
    """
    try:
        prediction, why = prediction_for(subject)
    except Exception as error:
        return None, "it failed", [internal_error("the prediction", error)]
    if prediction is not None or subject.target.gpu is None or subject.model is None:
        return prediction, why, []
    origin = subject.run.origins.get("base_model")
    notice = Finding(
        rule=NOT_PREDICTED,
        severity=Severity.WARNING,
        message=f"the run cannot be predicted: {why}",
        key=subject.run.keys.get("base_model"),
        place=(origin and origin.place) or START,
    )
    return None, why, [notice]


def _with_figures(findings: list[Finding], subject: Subject) -> tuple[list[Finding], tuple[str, ...], int | None]:
    """Return the findings with predicted figures and their severity on this card, and up to which length rows fit."""
    # Late: only predicted runs have figures.
    from vramwise.verbs.finding_figures import reserved_as_written, with_figures
    from vramwise.verbs.fitting.shorter_rows import rows_that_fit

    try:
        rows = rows_that_fit(subject, subject.prediction())
        rules = {rule.id: rule for rule in rules_for(subject.trainer)}
        figured, without = with_figures(findings, rules, subject, rows)
        capacity = subject.prediction().capacity_bytes
        return weighed(figured, rules, lambda: reserved_as_written(subject), capacity), without, rows
    except Exception as error:
        return [internal_error("the prediction of a remedy", error), *findings], (), None


def _internal_error(findings: Sequence[Finding], path: str) -> ConfigError | None:
    """Return an error if a rule or the prediction failed because of a bug, so that the exit code shows it."""
    failed = [found for found in findings if found.rule == INTERNAL_ERROR]
    return ConfigError(failed[0].message, path=path) if failed else None


def _memory(prediction: Prediction | None) -> MemoryReport | None:
    return None if prediction is None else prediction.shown


def named_files(paths: Sequence[str]) -> Iterator[tuple[str, ConfigError | None]]:
    """Yield every file that the paths name, once; a path that names no file comes with its error."""
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


def _type_error(findings: Sequence[Finding], subject: Subject) -> ConfigError | None:
    """Return an error for the first value of a wrong type, which makes the whole file unusable: no release takes it."""
    of_types = {rule.id for rule in rules_for(subject.trainer) if rule.unusable}
    taken, document, stack = subject.trainer.taken_by, subject.document, subject.target.stack
    wrong = [one for one in findings if one.rule in of_types and not taken(document, stack, one.key or "")]
    if not wrong:
        return None
    more = f" (and {len(wrong) - 1} more of a wrong type)" if len(wrong) > 1 else ""
    place = wrong[0].place
    return ConfigError(wrong[0].message + more, line=place.line, column=place.column, path=subject.document.path)


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
