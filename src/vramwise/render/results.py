"""The JSON of any verb's result: what its command prints with `--format json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vramwise.diagnosis.evidence import Diagnosis
from vramwise.render.diagnosis_json import diagnosis_json
from vramwise.render.fit_json import fit_json
from vramwise.render.new_text import new_json
from vramwise.render.prediction_json import prediction_json
from vramwise.render.report_json import reports_json
from vramwise.verbs.check import FileReport
from vramwise.verbs.fit import FitReport
from vramwise.verbs.predict import Answer
from vramwise.verbs.starting.plan import New

_DOCUMENTS: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    Answer: lambda answer: prediction_json(answer.prediction, answer),
    Diagnosis: diagnosis_json,
    FitReport: fit_json,
    New: new_json,
}


def result_json(result: Any) -> dict[str, Any]:
    """Return a verb's result as plain values; raises TypeError for what has no JSON."""
    if isinstance(result, list) and all(isinstance(one, FileReport) for one in result):
        return reports_json(result)
    if (document := _DOCUMENTS.get(type(result))) is None:
        raise TypeError(f"{type(result).__name__} has no JSON: pass a result of check, predict, fit, new or diagnose")
    return document(result)
