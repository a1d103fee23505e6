"""A diagnosis for people: one sentence first, then the evidence by line, what to change, and other causes."""

from __future__ import annotations

from collections.abc import Iterator

from click import style

from vramwise.diagnosis.evidence import Cause, Diagnosis, Remedy
from vramwise.diagnosis.read.snapshot import SnapshotFacts
from vramwise.diagnosis.sizes import size as sized
from vramwise.units import MIB, gib

_LONGEST = 240
_HOLDERS = 6
# What the first cause offers: beyond the first few remedies a reader is lost.
_REMEDIES = 6


def render_diagnosis(diagnosis: Diagnosis) -> str:
    """All of it."""
    colour = {"diagnosed": "red", "unexplained": "yellow"}.get(diagnosis.verdict, "green")
    blocks = [style(_printable(diagnosis.sentence), fg=colour, bold=True)]
    blocks += filter(None, (_evidence(diagnosis), _changes(diagnosis), _others(diagnosis)))
    if diagnosis.snapshot is not None:
        blocks.append(_snapshot(diagnosis.snapshot))
    blocks += filter(None, (_list("Ghost run", diagnosis.ghost), _list("Notes", diagnosis.notes)))
    blocks += filter(None, (_list("To know more", diagnosis.next_steps),))
    return "\n\n".join(blocks)


def _evidence(diagnosis: Diagnosis) -> str:
    lines = []
    symptom = diagnosis.symptom
    log = diagnosis.log.name if diagnosis.log else ""
    if symptom is not None and symptom.quote.line:
        place = style(f"{log}:{symptom.quote.line}", bold=True)
        lines.append(f"  {place}  {_shortened(_printable(symptom.quote.text))}")
    if diagnosis.causes:
        first = diagnosis.causes[0]
        lines += [f"  {_printable(said)}" for said in first.evidence]
        lines.append(f"  cause: {first.id} ({first.certainty}, {first.confidence:.2f}){_rule(first)}")
    return "\n".join([style("Evidence", bold=True), *lines]) if lines else ""


def _changes(diagnosis: Diagnosis) -> str:
    if not diagnosis.causes or not diagnosis.causes[0].remedies:
        return ""
    lines = [style("What to change", bold=True)]
    for remedy in diagnosis.causes[0].remedies[:_REMEDIES]:
        lines.extend(_remedy(remedy))
    return "\n".join(lines)


def _remedy(remedy: Remedy) -> Iterator[str]:
    unsafe = "" if remedy.fix is None or remedy.fix.safe else style(" (changes the training)", dim=True)
    yield f"  {style('•', fg='green')} {remedy.title}{unsafe}{_survival(remedy)}"
    if remedy.command:
        yield f"      {remedy.command}"
    for key in remedy.keys:
        yield f"      {key}"
    if remedy.refused:
        yield f"      not written: {_printable(remedy.refused)}"
    for line in remedy.diff.splitlines()[2:]:
        colour = {"+": "green", "-": "red"}.get(line[:1])
        yield f"      {style(_printable(line), fg=colour)}"


def _survival(remedy: Remedy) -> str:
    if remedy.survives is None:
        return ""
    word = style("would have survived", fg="green") if remedy.survives else style("would have failed too", fg="yellow")
    return f": {word} ({remedy.prediction})"


def _others(diagnosis: Diagnosis) -> str:
    lines = [
        f"  {cause.confidence:.2f} {cause.certainty:<9} {cause.id}: {_printable(cause.sentence)}{_rule(cause)}"
        for cause in diagnosis.causes[1:]
    ]
    return "\n".join([style("Other causes", bold=True), *lines]) if lines else ""


def _rule(cause: Cause) -> str:
    return f"; see `vramwise explain {cause.rule}`" if cause.rule else ""


def _snapshot(shot: SnapshotFacts) -> str:
    when = "at the failure" if shot.failed else "at the most allocated (no request failed in it)"
    lines = [f"{style('Who held the memory', bold=True)} {when}: {gib(shot.allocated_bytes)} allocated"]
    lines += [f"  {name:<38}{sized(size):>10}" for name, size in shot.by_category.items() if size >= MIB]
    lines.append(style("By place in the code", bold=True))
    for holder in shot.holders[:_HOLDERS]:
        if holder.size_bytes >= MIB:
            blocks = f"{holder.blocks:>5} {'block ' if holder.blocks == 1 else 'blocks'}"
            lines.append(f"  {sized(holder.size_bytes):>10} in {blocks}  {_printable(holder.place)[:100]}")
    if shot.failed:
        lines.append(
            f"{style('Holes', bold=True)}: {shot.holes}, together {sized(shot.unallocated_bytes)}, the largest "
            f"{sized(shot.largest_hole_bytes)}; asked for: {sized(shot.requested_bytes)}"
        )
    for outcome in shot.what_if:
        would = "would have served it" if outcome.served else "would have failed too"
        name = outcome.settings or "torch's defaults"
        lines.append(f"  replayed with {name}: {would} ({gib(outcome.peak_reserved_bytes)} reserved)")
    return "\n".join(lines)


def _list(title: str, lines: tuple[str, ...]) -> str:
    return "\n".join([style(title, bold=True), *(f"  {line}" for line in lines)]) if lines else ""


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " …"


def _printable(text: str) -> str:
    """A stranger's log must not move the cursor or colour the terminal."""
    return "".join(char if char.isprintable() else " " if char == "\t" else "�" for char in text)
