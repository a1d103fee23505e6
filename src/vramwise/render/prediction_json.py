"""The JSON format of `predict`, version 1, checked against a golden file."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from vramwise.render.prediction_text import breakdown_rows
from vramwise.render.report_json import finding_json, stack_json
from vramwise.render.speed_text import speed_json
from vramwise.render.verdict_text import as_options, effect, fit_command, reasons, sentence
from vramwise.timeline import MemoryReport
from vramwise.variants.prediction import Prediction
from vramwise.variants.verdict import Verdict
from vramwise.verbs.predict import Answer, WhatIf

VERSION = 1


def prediction_json(
    prediction: Prediction, answer: Answer | None = None, verdict: Verdict | None = None
) -> dict[str, Any]:
    """Return one prediction as plain values.

    Peaks are those with unlimited memory; `out_of_memory` and `retries` are those on the card.
    """
    report, needs = prediction.report, prediction.needs
    verdict = verdict or (answer.verdict if answer else prediction.verdict())
    failure = report.out_of_memory
    return {
        "version": VERSION,
        "engine": prediction.run.trainer,
        "model": prediction.model.name,
        "gpu": prediction.gpu and prediction.gpu.name,
        "fits": prediction.fits,
        "peak_allocated_bytes": needs.peak_allocated_bytes,
        "peak_reserved_bytes": needs.peak_reserved_bytes,
        "device_bytes": needs.device_bytes,
        "capacity_bytes": prediction.capacity_bytes,
        "out_of_memory": failure
        and {
            "step": failure.step,
            "phase": failure.phase,
            "requested_bytes": failure.requested_bytes,
            "label": failure.label,
            "allocated_bytes": failure.allocated_bytes,
            "reserved_bytes": failure.reserved_bytes,
        },
        "retries": report.retries,
        "phases": _phases(needs),
        "breakdown": _breakdown(needs),
        "mixed_rows": _mixed_rows(prediction),
        "allocator": needs.settings,
        "stack": stack_json(prediction.run.target.stack),
        "assumptions": list(prediction.assumptions),
        "expected_error": asdict(prediction.expected_error),
        "verdict": {**asdict(verdict), "text": sentence(prediction, verdict, signed=True)},
        "peak_at": {"step": needs.peak_step, "phase": needs.peak_phase},
        "stops": [finding_json(found) for found in prediction.stops],
        "reasons": list(reasons(prediction, verdict)),
        "range": _range(prediction, verdict),
        "remedies": _remedies(answer) if answer else [],
        "speed": speed_json(answer.speed, answer.duration) if answer else None,
    }


def _breakdown(report: MemoryReport) -> dict[str, int]:
    return {name.replace(" ", "_").lower(): size for name, size in breakdown_rows(report)}


def _mixed_rows(prediction: Prediction) -> dict[str, Any] | None:
    """Return the run over mixed rows, if these need more than full ones; otherwise None."""
    report = prediction.decisive
    if report is prediction.needs:
        return None
    return {
        "peak_reserved_bytes": report.highest_reserved_bytes,
        "peak_at": {"step": report.peak_step, "phase": report.peak_phase},
        "breakdown": _breakdown(report),
    }


def _range(prediction: Prediction, verdict: Verdict) -> dict[str, Any] | None:
    """Return the range of a run with features that are not followed, or of an open verdict; otherwise None.

    Rows that may be shorter than simulated need as little as weights, gradients and optimizer states alone.
    """
    found = prediction.bounds
    if found is None and verdict.memory != "may_fit":
        return None
    if found is not None:
        lower = found.lower_bytes
        if verdict.memory == "may_fit" and (verdict.rows_up_to is not None or prediction.rows_unlimited):
            lower = min(lower, verdict.least_bytes)
        upper = None if prediction.rows_unlimited else found.upper_bytes
        return asdict(replace(found, lower_bytes=lower, upper_bytes=upper))
    doubts = [one for one in prediction.doubts if one.text]
    return {
        "lower_bytes": verdict.least_bytes,
        "upper_bytes": verdict.most_bytes,
        "names": list(dict.fromkeys(one.kind for one in doubts)),
        "why": "; ".join([one.text for one in doubts]),
    }


def _remedies(answer: Answer) -> list[dict[str, Any]]:
    out = answer.way_out
    tried = None if out is None else out.attempt
    if out is None or tried is None:
        return []
    needs = tried.prediction and tried.prediction.needs
    remedy = {
        "title": tried.title,
        "effect": effect(tried),
        "edits": [{"op": edit.op, "key": edit.key, "value": edit.value} for edit in tried.edits],
        "commands": list(tried.commands),
        "options": as_options(tried),
        "peak_reserved_bytes": needs and needs.highest_reserved_bytes,
        "fit_command": fit_command(answer, out),
    }
    return [remedy]


def what_if_json(changed: WhatIf) -> dict[str, Any]:
    """Return a prediction with changes, and the findings that appear and disappear with them."""
    return {
        **prediction_json(changed.prediction, verdict=changed.verdict),
        "speed": speed_json(changed.speed),
        "changes": list(changed.changes),
        "new_findings": [finding_json(found) for found in changed.new],
        "gone_findings": [finding_json(found) for found in changed.gone],
    }


def _phases(report: MemoryReport) -> dict[str, dict[str, int]]:
    """Return the highest peaks by phase name over all steps, with the first step of each."""
    phases: dict[str, dict[str, int]] = {}
    for peak in report.phases:
        seen = phases.setdefault(
            peak.phase, {"peak_allocated_bytes": 0, "peak_reserved_bytes": 0, "first_step": peak.step}
        )
        seen["peak_allocated_bytes"] = max(seen["peak_allocated_bytes"], peak.peak_allocated_bytes)
        seen["peak_reserved_bytes"] = max(seen["peak_reserved_bytes"], peak.peak_reserved_bytes)
    return phases
