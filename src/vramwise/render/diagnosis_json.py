"""The JSON format of `diagnose`, version 1, checked against a golden file."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vramwise.diagnosis.evidence import Cause, Diagnosis, Remedy, Symptom
from vramwise.diagnosis.read.snapshot import SnapshotFacts
from vramwise.render.json_text import json_text

VERSION = 1
_FIGURES = (
    *("requested_bytes", "total_bytes", "free_bytes", "allocated_bytes", "unallocated_bytes", "this_process_bytes"),
    *("allowed_bytes", "device"),
)


def render_json(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as JSON text."""
    return json_text(diagnosis_json(diagnosis), indent=2)


def diagnosis_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return one diagnosis as plain values.

    Lines count from 1, confidences are between 0 and 1, and unknown values are null.
    """
    log = diagnosis.log
    return {
        "version": VERSION,
        "verdict": diagnosis.verdict,
        "sentence": diagnosis.sentence,
        "log": log and {"name": log.name, "lines": log.lines, "bytes": log.size_bytes, "ranks": sorted(log.ranks)},
        "config": diagnosis.config,
        "trainer": diagnosis.trainer,
        "failure": diagnosis.symptom and _symptom(diagnosis.symptom),
        "causes": [_cause(cause) for cause in diagnosis.causes],
        "snapshot": diagnosis.snapshot and _snapshot(diagnosis.snapshot),
        "ghost_run": list(diagnosis.ghost),
        "notes": list(diagnosis.notes),
        "next_steps": list(diagnosis.next_steps),
    }


def _symptom(symptom: Symptom) -> dict[str, Any]:
    memory = symptom.memory
    return {
        "kind": symptom.kind,
        "line": symptom.quote.line or None,
        "text": symptom.quote.text,
        "rank": symptom.rank,
        "phase": symptom.phase or None,
        "stage": symptom.stage or None,
        "step": symptom.step,
        "after": symptom.after or None,
        "memory": memory and {name: getattr(memory, name) for name in _FIGURES},
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "id": cause.id,
        "sentence": cause.sentence,
        "confidence": round(cause.confidence, 3),
        "certainty": cause.certainty,
        "rule": cause.rule,
        "explain": cause.rule and f"vramwise explain {cause.rule}",
        "evidence": list(cause.evidence),
        "lines": [quote.line for quote in cause.quotes],
        "remedies": [_remedy(remedy) for remedy in cause.remedies],
    }


def _remedy(remedy: Remedy) -> dict[str, Any]:
    fix = remedy.fix
    return {
        "title": remedy.title,
        "safe": fix and fix.safe,
        "edits": [asdict(edit) for edit in fix.edits] if fix else [],
        "keys": list(remedy.keys),
        "command": remedy.command,
        "diff": remedy.diff or None,
        "refused": remedy.refused or None,
        "survives": remedy.survives,
        "prediction": remedy.prediction or None,
    }


def _snapshot(shot: SnapshotFacts) -> dict[str, Any]:
    return {
        "name": shot.name,
        "settings": shot.settings,
        "failed": shot.failed,
        "requested_bytes": shot.requested_bytes,
        "allocated_bytes": shot.allocated_bytes,
        "reserved_bytes": shot.reserved_bytes,
        "by_category": dict(shot.by_category),
        "holders": [holder._asdict() for holder in shot.holders],
        "holes": shot.holes,
        "largest_hole_bytes": shot.largest_hole_bytes,
        "growing": [growth._asdict() for growth in shot.growing],
        "what_if": [outcome._asdict() for outcome in shot.what_if],
    }
