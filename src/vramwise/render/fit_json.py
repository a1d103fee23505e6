"""The JSON format of `fit`, version 1."""

from __future__ import annotations

from typing import Any

from vramwise.render import fit_words as words
from vramwise.render.report_json import finding_json
from vramwise.render.speed_text import speed_json
from vramwise.types import GpuSpec
from vramwise.variants.attempt import Attempt
from vramwise.verbs.fit import FitReport
from vramwise.verbs.fitting.over_cards import Strategy

VERSION = 1


def fit_json(report: FitReport) -> dict[str, Any]:
    """Return one answer as plain values. Sizes are in bytes; `faster` of a variant is relative to the original file."""
    fit = report.fit

    def variant(one: Attempt | None) -> dict[str, Any] | None:
        return None if one is None else _variant(one, report)

    card = words.card_of(fit)
    return {
        "version": VERSION,
        "config": report.document.path,
        "gpu": card and card.name,
        "verdict": {
            "kind": words.kind(fit),
            "changed": fit.changed,
            "speedup": None if fit.best is None else words.ratio(fit.original, fit.best),
            "text": words.answer(fit, report.asked),
        },
        "reasons": list(words.reasons(report)),
        "repairs": [finding_json(found) for found in fit.repairs],
        "stops": [finding_json(found) for found in fit.stops],
        "best": variant(fit.best),
        "original": variant(fit.original),
        "alternatives": [variant(one) for one in fit.alternatives],
        "closest": variant(fit.closest),
        "opened": [{"allow": allow.split(), **(variant(one) or {})} for allow, one in fit.opened],
        "fallen": dict(fit.fallen),
        "strategies": [_strategy(one) for one in report.strategies],
        "smallest_card": _card(fit.smallest_card),
        "considered": fit.considered,
        "simulated": fit.simulated,
        "ended_early": fit.ended_early,
        "command": report.command,
        "written": report.written or None,
    }


def _variant(one: Attempt, report: FitReport) -> dict[str, Any]:
    prediction = one.prediction
    return {
        "words": one.words,
        "fits": one.fits,
        "tight": one.tight,
        "fell": one.fell,
        "changes": [
            {"id": change.id, "title": change.title, "effect": change.effect, "why": change.why}
            for change in one.changes
        ],
        "edits": [{"op": edit.op, "key": edit.key, "value": edit.value} for edit in one.edits],
        "commands": list(one.commands),
        "by_hand": list(one.by_hand),
        "diff": report.diff(one),
        "reserved_bytes": one.reserved_bytes,
        "capacity_bytes": prediction and prediction.capacity_bytes,
        "spare_bytes": one.spare_bytes,
        "margin_bytes": one.margin_bytes,
        "speed": speed_json(one.speed),
        "faster": words.ratio(report.fit.original, one),
    }


def _strategy(one: Strategy) -> dict[str, Any]:
    """Return one way to use several GPUs, with all other settings unchanged."""
    tried = one.attempt
    needs = tried.prediction and tried.prediction.needs
    return {
        "name": one.name,
        "sharding": one.kind,
        "offloads": one.offloads,
        "allow": one.allow or None,
        "by_hand": one.by_hand or None,
        "fits": tried.fits,
        "reserved_bytes": needs and needs.highest_reserved_bytes,
        "refused": tried.refused,
        "speed": speed_json(tried.speed),
        "launch": one.launch or None,
    }


def _card(card: GpuSpec | None) -> dict[str, Any] | None:
    return None if card is None else {"gpu": card.name, "usable_bytes": card.memory_bytes}
