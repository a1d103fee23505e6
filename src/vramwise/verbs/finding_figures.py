"""Adds figures to findings: predicted memory as written, and with the remedy applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from vramwise.allocator.variables import EXPANDABLE
from vramwise.documents.edit import EditRefused, apply_edits
from vramwise.errors import VramwiseError
from vramwise.opening.subject import Subject
from vramwise.rules.base import Rule
from vramwise.types import Finding, RunSpec, Severity
from vramwise.types.actions import action
from vramwise.units import gib
from vramwise.variants.batches import varied_lengths
from vramwise.variants.effort import FIGURES, is_large
from vramwise.variants.verdict import NAMES
from vramwise.verbs.check import lighter
from vramwise.verbs.fast_numbers import against_plain

# Smaller differences are not reported.
_WORTH_SAYING = 0.03
# Limits the simulation of varying lengths (batches × layers) to about a third of a second.
_LAYERS_FIGURED = 128
_FEWEST_BATCHES = 4
# No batch that fits a card has more samples; their lengths alone would fill this machine's memory.
_MOST_SAMPLES = 1_000_000


def with_figures(
    findings: Sequence[Finding], rules: Mapping[str, Rule], subject: Subject, rows_up_to: int | None
) -> tuple[list[Finding], tuple[str, ...]]:
    """Return the findings with predicted figures, and the rules without figures because they would take too long.

    `rules`: by id. `rows_up_to`: see Verdict.
    """
    misfits = [finding for finding in findings if finding.rule in rules and rules[finding.rule].misfit]
    findings = [_left_open(finding, subject, rows_up_to) if finding in misfits else finding for finding in findings]
    findings = [_at_full_rows(finding, rules.get(finding.rule), subject) for finding in findings]
    wanted = [
        finding for finding in findings if finding.rule in rules and _can_be_figured(rules[finding.rule], subject.run)
    ]
    if not wanted or subject.model is None:
        return list(findings), ()
    since = subject.effort.spent
    as_written = cache(lambda: reserved_as_written(subject, since))
    figured: list[Finding] = []
    without: dict[str, None] = {}
    for finding in findings:
        found: Finding | None = finding
        if finding in wanted and _takes_too_long(subject, since):
            without[finding.rule] = None
        elif finding in wanted:
            found = _figured(finding, rules[finding.rule], subject, as_written)
        figured += [] if found is None else [found]
    return figured, tuple(without)


def _takes_too_long(subject: Subject, since: int) -> bool:
    """Return whether another prediction would take too long: the run is large, or the effort since `since` is spent."""
    if _varies(subject.run) and subject.run.objective.kind == "grpo":
        return True  # completions differ in length in each batch: that takes seconds
    return not subject.effort.affords(FIGURES, since) or is_large(subject.prediction().short_timeline)


def reserved_as_written(subject: Subject, since: int | None = None) -> int | None:
    """Return the peak reserved memory of the run as written, with varying widths if they matter.

    None if it is not predicted. `since`: the effort spent before the figures; default: all effort so far.
    """
    if not _varies(subject.run):
        return _reserved(subject, varied=False)
    if _takes_too_long(subject, subject.effort.spent if since is None else since):
        return None
    return _reserved(subject, varied=True)


def _left_open(finding: Finding, subject: Subject, rows: int | None) -> Finding:
    """Turn a misfit into a warning if the run may still fit, because rows are shorter or the prediction is a range."""
    prediction = subject.prediction()
    message = finding.message
    if rows is not None:
        full = f"with full rows of {subject.run.shapes.sequence_len} tokens " if prediction.memory_fits is False else ""
        message = f"{full}{message}; it fits if no row exceeds about {rows}: {action('read how long')}"
    elif prediction.memory_fits is None:
        named = [one.text for one in prediction.doubts if one.text]
        why = named if prediction.bounds is None else [prediction.bounds.why]
        message += f"; it may still fit: {'; '.join(why[:3])}"
    else:
        return finding
    return replace(finding, severity=Severity.WARNING, message=f"{NAMES['may_fit']}: {message}")


def _at_full_rows(finding: Finding, rule: Rule | None, subject: Subject) -> Finding:
    """Turn a warning that assumes full rows into a note if the run fits and the data may have shorter rows.

    It stays a warning if full rows may not be the maximum. Without expandable segments, rows of varying lengths may
    reserve more; images, and scripts that change their rows, have no known bound.
    """
    if rule is None or not rule.lighter_at_full_rows or finding.severity is not Severity.WARNING:
        return finding
    shapes = subject.run.shapes
    known = shapes.constant_shapes or subject.data.train is not None
    if known or not shapes.can_pad or _varies(subject.run) or not subject.prediction().memory_fits:
        return finding
    rows = f"with full rows of {shapes.sequence_len} tokens"
    return lighter(replace(finding, message=f"{rows} {finding.message}; {action('read how long')}"))


def _can_be_figured(rule: Rule, run: RunSpec) -> bool:
    """Return whether a rule's findings get figures. Padding has no effect with expandable segments."""
    if rule.figured == "fixed segments":
        return EXPANDABLE not in run.allocator.settings
    return rule.figured != "no"


def _varies(run: RunSpec) -> bool:
    """Return whether widths follow the data and that matters. With expandable segments, the widest batch decides."""
    return not run.shapes.constant_shapes and EXPANDABLE not in run.allocator.settings


def _figured(finding: Finding, rule: Rule, subject: Subject, as_written: Callable[[], int | None]) -> Finding | None:
    if rule.figured == "fast numbers":
        said = against_plain(subject)
        return replace(finding, message=f"{finding.message}; predicted: {said}") if said else finding
    other = _remedied(finding, rule, subject)
    if other is None:
        return finding
    varied = _varies(subject.run)
    now = as_written()
    then = None if now is None else _reserved(other, varied and not other.run.shapes.constant_shapes)
    if now is None or then is None:
        return finding
    if now <= then * (1 + _WORTH_SAYING):
        return _costless(finding, rule)
    longest = subject.run.keys.get("sequence_len", "sequence_len")
    data = f" with lengths spread up to {longest}" if varied and subject.data.train is None else ""
    return replace(finding, message=f"{finding.message}; predicted to reserve {gib(now)} instead of {gib(then)}{data}")


def _costless(finding: Finding, rule: Rule) -> Finding | None:
    """Return a finding whose remedy saves nothing here, or None if it is then not worth reporting."""
    if rule.without_gain == "dropped":
        return None
    if rule.without_gain == "stays":
        return finding
    return lighter(replace(finding, message=f"{finding.message}; predicted to have no effect here"))


def _remedied(finding: Finding, rule: Rule, subject: Subject) -> Subject | None:
    if rule.remedied:
        return subject.with_run(subject.run.changed(**rule.remedied))
    try:
        return subject.with_document(apply_edits(subject.document, finding.fix.edits)) if finding.fix else None
    except EditRefused:
        return None


def _reserved(subject: Subject, varied: bool) -> int | None:
    """Return the peak reserved memory; `varied`: over batches of varying length.

    With varying lengths, a step simulates only some of its micro-steps: more of the same kind only cost time.
    """
    run, model = subject.run, subject.model
    assert model is not None
    try:
        if not varied or subject.data.train is not None:  # known data has its own varying lengths
            return subject.prediction(on_card=False).needs.peak_reserved_bytes
        batches = max(_FEWEST_BATCHES, _LAYERS_FIGURED // model.num_hidden_layers)
        each = min(run.batch.gradient_accumulation_steps, max(_FEWEST_BATCHES, batches // 4))
        run = run.changed(gradient_accumulation_steps=each)
        steps = max(1, min(8, batches // each))
        if steps * each * run.batch.micro_batch_size > _MOST_SAMPLES:
            return None
        lengths = varied_lengths(run, steps)
        varied_run = subject.with_run(run).prediction(lengths=lengths, eval_lengths=lengths, on_card=False)
        return varied_run.needs.peak_reserved_bytes
    except VramwiseError:
        return None
