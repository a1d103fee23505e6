"""The result of `new` as text and JSON: the verdict, what was decided, and what the next better method would need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.render.doubt_text import doubt_lines
from vramwise.render.outward import style
from vramwise.render.speed_text import hours, seconds, speed_json, steps_of
from vramwise.render.verdict_text import SIGNS
from vramwise.trainers.starting import FORMATS
from vramwise.types import Finding
from vramwise.units import gib, readable
from vramwise.verbs.starting.plan import METHODS, Better, New

VERSION = 1


def render_new(new: New) -> list[str]:
    """Return the verdict and the lines below it."""
    sign, colour = SIGNS["fits" if new.fits and not new.subject.stops else "does_not_fit"]
    return [style(f"{sign} {verdict(new)}", fg=colour, bold=True), *(f"  {line}" for line in further(new))]


def verdict(new: New) -> str:
    """Return one sentence: what is trained and how, its memory, and the time of a step and of the run."""
    trained = f"{new.plan.described(new.method)} ({new.subject.trainer.title})"
    if not new.fits:
        if new.only_stops:
            return f"Nothing that fits {new.plan.cards} starts: {trained} would fit, and stops"
        if new.proof_bytes:
            return f"Nothing fits {new.plan.cards}: the weights alone need at least {gib(new.proof_bytes)}"
        closest = f"{trained} comes closest and misses by {_missed(new)}"
        return f"Found nothing that fits {new.plan.cards} in {new.tries:,} tries: {closest}"
    needs = gib(new.prediction.needs.highest_reserved_bytes)
    room = gib(new.prediction.capacity_bytes or 0)
    each = " on each" if new.plan.gpus > 1 else ""
    return f"{trained} fits {new.plan.cards}: needs {needs} of {room}{each}{_time(new)}"


def further(new: New) -> Iterator[str]:
    """Yield what was read, what the next better method needs and what comes next; or what would fit instead."""
    if not new.fits:
        yield from _instead(new)
        return
    yield from doubt_lines(new.prediction, new.prediction.verdict())
    yield _data(new)
    if new.better is not None:
        needs, short = gib(new.better.needs_bytes), readable(new.better.short_bytes)
        yield f"Better, but too large: {METHODS[new.better.method]} needs {needs}, {short} more than fits with a margin"
    for found in new.findings:
        yield f"check says: {found.message}"
    yield from (f"Needs: {line}" for line in new.requirements)
    yield f"Train: {new.launch}"


def _data(new: New) -> str:
    source, lengths = new.plan.source, new.plan.lengths
    if source.placeholder:
        return "No data is named: put yours in place of the placeholder, or use --data"
    if lengths is None:
        return f"Data: {source.path}, {FORMATS[source.format]}; rows count as full"
    counted = "estimated: the model's tokenizer is not here" if "estimated at" in lengths.described else "counted"
    few, many = min(lengths.tokens), max(lengths.tokens)
    found = f"{len(lengths.tokens):,} samples of {few:,} to {many:,} tokens ({counted})"
    return f"Data: {source.path}, {FORMATS[source.format]}: {found}"


def _missed(new: New) -> str:
    return readable(new.closest.short_bytes) if new.closest is not None else "an unknown amount"


def _time(new: New) -> str:
    if new.speed is None:
        return ""
    step, whole = f"; about {seconds(new.speed.step_seconds)} a step", new.duration
    if whole is None:
        return step
    least = "at least " if whole.at_least else ""
    return f"{step}, {least}{hours(whole.hours)} in all ({steps_of(whole)}: {whole.basis})"


def _instead(new: New) -> Iterator[str]:
    """Yield what would fit or start."""
    if new.only_stops:
        yield from (f"check says: {found.message}" for found in new.subject.stops)
        yield "Choose another --trainer or --method"
        return
    closest = new.closest
    if closest is not None and closest.needs_bytes:
        mixed = new.prediction.decisive is not new.prediction.needs
        rows = " with rows of mixed lengths, which nobody described" if mixed else ""
        yield f"It needs {gib(closest.needs_bytes)} of {gib(new.prediction.capacity_bytes or 0)}{rows}, and a margin"
    if closest is not None and closest.card is not None:
        yield f"The smallest card for it: {closest.card.name} ({gib(closest.card.memory_bytes)})"
    if not new.proof_bytes:
        yield "Not tried: --sequence-len and --rank other than these, another --trainer, more --gpus"
    if new.smaller_model:
        yield f"A smaller model of the family that fits: {new.smaller_model}"
    for found in new.subject.stops:
        yield f"check says: {found.message}"


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
