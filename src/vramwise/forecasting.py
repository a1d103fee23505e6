"""Predictions inside `check`: one for the run as it is, and one for each finding whose cost can be put in figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from vramwise.batching import varied_lengths
from vramwise.documents.edit import EditRefused, apply_edits
from vramwise.errors import VramwiseError
from vramwise.facts.models import find_model
from vramwise.predicting import predict_run
from vramwise.timeline import MemoryReport
from vramwise.types import Document, Finding, ModelSpec, RunSpec
from vramwise.units import gib

# Differences below this are not worth a word.
_WORTH_SAYING = 0.03
_FIGURED = (
    "eval-batch-differs",
    "unpadded-sequences",
    "allocator-not-expandable",
    "fsdp-accumulates-whole-gradients",
)


def model_of(run: RunSpec, path: str) -> ModelSpec | None:
    """The model's dimensions where they are known without asking anybody."""
    if run.base_model is None:
        return None
    try:
        return find_model(run.base_model, base_dir=Path() if path == "-" else Path(path).parent)
    except VramwiseError:
        return None


def forecast(run: RunSpec, model: ModelSpec) -> MemoryReport:
    """The run as written, on its card."""
    prediction = predict_run(run, model)
    return replace(prediction.report, capacity_bytes=prediction.capacity_bytes)


def with_figures(
    findings: Sequence[Finding],
    document: Document,
    run: RunSpec,
    model: ModelSpec,
    resolve: Callable[[Document], RunSpec],
) -> list[Finding]:
    """The findings; those that a prediction can put in figures say what they reserve and what their remedy would."""

    def remedied(finding: Finding) -> RunSpec | None:
        if finding.rule == "allocator-not-expandable":
            return replace(run, allocator="expandable_segments:True")
        try:
            return resolve(apply_edits(document, finding.fix.edits)) if finding.fix else None
        except EditRefused:
            return None

    as_written = cache(lambda: _reserved(run, model))
    data = "" if run.constant_shapes else " with lengths spread up to sequence_len"

    def figured(finding: Finding) -> Finding:
        other = remedied(finding) if finding.rule in _FIGURED else None
        if other is None:
            return finding
        now, then = as_written(), _reserved(other, model)
        if now <= then * (1 + _WORTH_SAYING):
            return finding
        figures = f"predicted to reserve {gib(now)} instead of {gib(then)}{data}"
        return replace(finding, message=f"{finding.message}; {figures}")

    return [figured(finding) for finding in findings]


def _reserved(run: RunSpec, model: ModelSpec) -> int:
    """Peak reserved; where widths follow the data, over lengths that vary as data does."""
    lengths = None if run.constant_shapes else varied_lengths(run)
    return predict_run(run, model, lengths=lengths, eval_lengths=lengths).needs.peak_reserved_bytes
