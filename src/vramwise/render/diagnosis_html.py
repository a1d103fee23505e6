"""The page of `diagnose --html`: what happened, what to change, and the snapshot's memory timeline."""

from __future__ import annotations

from vramwise.diagnosis.drawing import Drawing
from vramwise.diagnosis.evidence import Cause, Diagnosis, Remedy
from vramwise.render.html import render_html
from vramwise.render.html.markup import Markup, element, together
from vramwise.render.html.sections import card
from vramwise.units import readable


def diagnosis_page(diagnosis: Diagnosis, drawing: Drawing) -> str:
    """Return the page as one HTML file that needs no network."""
    shot = drawing.snapshot
    moment = "at the failure" if shot.failed else "at the most allocated"
    notes = [f"figures are those {moment}; categories come from the recorded stacks"]
    if drawing.most_reserved_bytes > shot.reserved_bytes:
        notes.append(
            f"up to {readable(drawing.most_reserved_bytes)} were reserved earlier: before a request fails, the "
            "allocator releases its cached memory"
        )
    return render_html(
        title=shot.name,
        verdict=diagnosis.sentence,
        subtitle=f"a recording of {shot.events:,} events, replayed" + (" up to the failure" if shot.failed else ""),
        profile=drawing.profile,
        report=drawing.report,
        gpu=None,
        findings=(),
        assumptions=(*diagnosis.notes, *notes),
        expected_error="",
        advice=advice(diagnosis),
    )


def advice(diagnosis: Diagnosis) -> Markup | None:
    """Return what to change and why, or None without a cause."""
    if not diagnosis.causes:
        return None
    first, *others = diagnosis.causes
    parts = [element("ul", *(element("li", said) for said in first.evidence))] if first.evidence else []
    changes = [_remedy(remedy) for remedy in first.remedies]
    cards = [card("why", "Why", *parts, _others(others))]
    if changes:
        cards.insert(0, card("changes", "What to change", element("ul", *changes, class_="findings")))
    return together(*cards)


def _remedy(remedy: Remedy) -> Markup:
    words = "" if remedy.fix is None else remedy.fix.effect_words
    survives = f": would have survived ({remedy.prediction})" if remedy.survives else ""
    lines = [remedy.command] if remedy.command else []
    lines += [*remedy.keys, *remedy.diff.splitlines()[2:]]
    return element(
        "li",
        element("p", element("b", remedy.title), f" ({words})" if words else "", survives),
        element("p", f"not written: {remedy.refused}") if remedy.refused else None,
        element("pre", element("code", "\n".join(lines)), tabindex=0) if lines else None,
    )


def _others(causes: list[Cause]) -> Markup | None:
    if not causes:
        return None
    items = [element("li", f"{cause.certainty}: {cause.sentence}") for cause in causes]
    return together(element("p", element("b", "Other causes")), element("ul", *items))
