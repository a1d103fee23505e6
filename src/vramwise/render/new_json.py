"""The result of `new` as JSON."""

from __future__ import annotations

from typing import Any

from vramwise.render.new_text import further, verdict
from vramwise.render.speed_text import speed_json
from vramwise.types import Finding
from vramwise.verbs.starting.result import Better, New

VERSION = 1


def new_json(new: New) -> dict[str, Any]:
    """Return the config's text and everything that the terminal shows."""
    return {
        "version": VERSION,
        "verdict": {"fits": new.fits, "text": verdict(new)},
        "notes": list(further(new)),
        "trainer": new.subject.trainer.name,
        "method": new.method,
        "data_format": new.plan.format,
        "config": new.text,
        "script": new.script,
        "companions": dict(new.companions),
        "launch": new.launch,
        "requirements": list(new.requirements),
        "reserved_bytes": new.prediction.needs.highest_reserved_bytes,
        "capacity_bytes": new.prediction.capacity_bytes,
        "speed": speed_json(new.speed, new.duration),
        "better": _better(new.better),
        "closest": _better(new.closest),
        "smaller_model": new.smaller_model or None,
        "findings": [_finding(found) for found in new.findings],
    }


def _finding(found: Finding) -> dict[str, str]:
    return {"rule": found.rule, "severity": found.severity.value, "message": found.message}


def _better(better: Better | None) -> dict[str, Any] | None:
    if better is None:
        return None
    card = None if better.card is None else better.card.name
    return {
        "method": better.method,
        "needs_bytes": better.needs_bytes,
        "short_bytes": better.short_bytes,
        "smallest_card": card,
    }
