"""A diagnosis as text: the conclusion first, then the evidence by line, what to change, and other causes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vramwise.diagnosis.evidence import Cause, Diagnosis, Remedy
from vramwise.diagnosis.read.snapshot import SnapshotFacts
from vramwise.render.outward import style
from vramwise.units import MIB, gib, readable

_LONGEST = 240
_HOLDERS = 6
# How many remedies of the first cause are shown.
_REMEDIES = 7


def render_diagnosis(diagnosis: Diagnosis) -> list[str]:
    """Return all lines of a diagnosis."""
    colour = {"diagnosed": "red", "unexplained": "yellow"}.get(diagnosis.verdict, "green")
    lines = [style(diagnosis.sentence, fg=colour, bold=True)]
    for block in (
        _evidence(diagnosis),
        _changes(diagnosis),
        _others(diagnosis),
        [] if diagnosis.snapshot is None else _snapshot(diagnosis.snapshot),
        _list("Ghost run", (f"  {line}" for line in diagnosis.ghost)),
        _list("Notes", (f"  {line}" for line in diagnosis.notes)),
        # Advice, some of it with lines to copy.
        _list("To learn more", (f"  {line}" for step in diagnosis.next_steps for line in step.split("\n"))),
    ):
        lines += ["", *block] if block else []
    return lines


def _evidence(diagnosis: Diagnosis) -> list[str]:
    lines = []
    symptom = diagnosis.symptom
    log = diagnosis.log.name if diagnosis.log else ""
    if symptom is not None and symptom.quote.line:
        place = style(f"{log}:{symptom.quote.line}", bold=True)
        lines.append(f"  {place}  {_shortened(_untabbed(symptom.quote.text))}")
    if diagnosis.causes:
        first = diagnosis.causes[0]
        lines += [f"  {_untabbed(said)}" for said in first.evidence]
        certainty = f"{first.certainty}, a guess" if first.is_guess else first.certainty
        lines.append(f"  cause: {first.id} ({certainty}, {first.confidence:.2f}){_rule(first)}")
    return _list("Evidence", lines)


def _changes(diagnosis: Diagnosis) -> list[str]:
    offered = diagnosis.causes[0].remedies if diagnosis.causes else ()
    remedies = offered[:_REMEDIES]
    if offered[_REMEDIES:] and offered[-1].command and offered[-1].survives:
        remedies = (*remedies, offered[-1])  # the best change that fits, with the command that writes it
    return _list("What to change", (line for remedy in remedies for line in _remedy(remedy)))


def _remedy(remedy: Remedy) -> Iterator[str]:
    words = "" if remedy.fix is None else remedy.fix.effect_words
    unsafe = style(f" ({words})", dim=True) if words else ""
    yield f"  {style('•', fg='green')} {remedy.title}{unsafe}{_survival(remedy)}"
    if remedy.command:
        yield f"      {remedy.command}"
    for key in remedy.keys:
        yield f"      {key}"
    if remedy.refused:
        yield f"      not written: {remedy.refused}"
    for line in remedy.diff.splitlines()[2:]:
        colour = {"+": "green", "-": "red"}.get(line[:1])
        yield f"      {style(line, fg=colour)}"


def _survival(remedy: Remedy) -> str:
    if remedy.survives is None:
        return ""
    word = style("would have survived", fg="green") if remedy.survives else style("would have failed too", fg="yellow")
    return f": {word} ({remedy.prediction})"


def _others(diagnosis: Diagnosis) -> list[str]:
    lines = [
        f"  {cause.confidence:.2f} {cause.certainty:<9} {cause.id}: {cause.sentence}{_rule(cause)}"
        for cause in diagnosis.causes[1:]
    ]
    return _list("Other causes", lines)


def _rule(cause: Cause) -> str:
    return f"; see `vramwise explain {cause.rule}`" if cause.rule else ""


def _snapshot(shot: SnapshotFacts) -> list[str]:
    when = "at the failure" if shot.failed else "at the allocation peak (no request failed)"
    lines = [f"{style('Who held the memory', bold=True)} {when}: {gib(shot.allocated_bytes)} allocated"]
    lines += [f"  {name:<38}{readable(size):>10}" for name, size in shot.by_category.items() if size >= MIB]
    lines.append(style("By place in the code", bold=True))
    for holder in shot.holders[:_HOLDERS]:
        if holder.size_bytes >= MIB:
            blocks = f"{holder.blocks:>5} {'block ' if holder.blocks == 1 else 'blocks'}"
            lines.append(f"  {readable(holder.size_bytes):>10} in {blocks}  {holder.place[:100]}")
    if shot.failed:
        lines.append(
            f"{style('Holes', bold=True)}: {shot.holes}, together {readable(shot.unallocated_bytes)}, the largest "
            f"{readable(shot.largest_hole_bytes)}; requested: {readable(shot.requested_bytes)}"
        )
    for outcome in shot.what_if:
        would = "would have succeeded" if outcome.served else "would have failed too"
        name = outcome.settings or "torch's defaults"
        lines.append(f"  replayed with {name}: {would} ({gib(outcome.peak_reserved_bytes)} reserved)")
    return lines


def _list(title: str, lines: Iterable[str]) -> list[str]:
    listed = list(lines)
    return [style(title, bold=True), *listed] if listed else []


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " …"


def _untabbed(text: str) -> str:
    """Return a log's text with tabs replaced by spaces."""
    return text.replace("\t", " ")
