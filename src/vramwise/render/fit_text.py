"""`fit` as text: the answer, the diff, alternatives and their cost, rejected variants, and what to run next."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.render import fit_words as words
from vramwise.render.folding import fold, fold_all
from vramwise.render.outward import style
from vramwise.render.speed_text import seconds, times
from vramwise.render.verdict_text import EFFECTS, SIGNS
from vramwise.units import gib, readable
from vramwise.variants.attempt import Attempt
from vramwise.variants.search.result import Fit
from vramwise.verbs.fit import FitReport
from vramwise.verbs.fitting.over_cards import Strategy

# The minimum width of the text column.
_NARROWEST = 24
# The fastest variants that the table shows besides the original file; the page and JSON have all.
_ROWS = 4
_HEAD = ("", "reserved", "spare", "a step", "speed")


def headline(report: FitReport) -> str:
    """Return the first line: the answer."""
    sign, colour = SIGNS[words.kind(report.fit)]
    clause, *rest = words.answer_parts(report.fit, report.asked)
    return ": ".join((style(f"{sign} {clause}", fg=colour, bold=True), *rest))


def render_fit(report: FitReport, *, width: int | None = None) -> list[str]:
    """Return every line, folded to `width`, except the diff and commands, which are meant to be copied."""
    fit = report.fit
    plain = [f"In your file, {report.against_plain}"] if report.against_plain else []
    prose = [headline(report), *(f"  {reason}" for reason in (*plain, *words.reasons(report)))]
    parts = [
        fold_all(prose, width),
        fold_all(_effects(fit), width),
        list(diff_lines(report)),
        _table(fit, width),
        fold_all(over_cards(report), width),
        *(fold_all(part, width) for part in (_opened(fit), _others(fit), rests_on(fit), next_lines(report))),
    ]
    return [line for part in parts if part for line in ("", *part)][1:]


def _effects(fit: Fit) -> list[str]:
    """Return what the changes do to the training, with the reason if they change it."""
    changes = fit.best.changes if fit.best is not None else ()
    lines = []
    for effect, said in EFFECTS.items():
        alike = [change for change in changes if change.effect == effect]
        if alike:
            whys = "; ".join(dict.fromkeys(change.why for change in alike)) if effect == "changes" else ""
            title = style(f"{said[:1].upper()}{said[1:]}", bold=True)
            lines.append(f"{title}: {Attempt(changes=tuple(alike)).words}{f' ({whys})' if whys else ''}")
    return lines


def diff_lines(report: FitReport) -> Iterator[str]:
    """Yield the answer as a diff of the user's file."""
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in report.diff(report.fit.best).splitlines():
        heading = line.startswith(("---", "+++"))
        colour = None if heading else colours.get(line[:1])
        yield style(line, bold=True) if heading else style(line, fg=colour) if colour else line


def _table(fit: Fit, width: int | None) -> list[str]:
    """Return the table of the answer, the alternatives and the original file."""
    rows = variants(fit)
    rows = [one for at, one in enumerate(rows) if at < _ROWS or one is fit.original]
    if len(rows) < 2:
        return []
    cells = [("→" if one is fit.best else "", *figure_cells(fit, one)) for one in rows]
    widths = [max(len(row[at]) for row in (_HEAD, *cells)) for at in range(len(_HEAD))]
    title = "Variants that fit" if fit.best is not None else "The closest"
    head = "  ".join(name.rjust(width) for name, width in zip(_HEAD, widths, strict=True))
    lines = [style(title, bold=True), f"  {head}"]
    for row, one in zip(cells, rows, strict=True):
        line = "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        room = None if width is None else max(_NARROWEST, width - len(line) - 4)
        first, *more = fold(f"{one.words}{price(fit, one)}", room, deeper="")
        lines.append(f"  {style(line, bold=True) if one is fit.best else line}  {first}")
        lines += [f"{'':{len(line) + 4}}{rest}" for rest in more]
    return lines


def over_cards(report: FitReport) -> list[str]:
    """Return the ways to use several GPUs with the fastest that fits marked, and how to launch it."""
    found = [one for one in report.strategies if one.attempt.prediction is not None]
    if len(found) < 2:
        return []
    chosen = report.fastest_strategy
    gpus = report.strategies[0].attempt.prediction.run.batch.gpus if report.strategies[0].attempt.prediction else 0
    lines = [
        style(f"Your file on {gpus} GPUs, other settings unchanged (speed of several GPUs: not measured)", bold=True)
    ]
    longest = max(len(one.name) for one in found)
    for one in found:
        assert one.attempt.prediction is not None
        needed = gib(one.attempt.prediction.needs.highest_reserved_bytes).rjust(10)
        taken = "" if one.attempt.seconds is None else seconds(one.attempt.seconds).rjust(8)
        said = "" if one.attempt.fits else "  does not fit"
        own = "  your file" if not one.allow and not one.offloads else ""
        lines.append(f"  {'→' if one is chosen else ' '} {one.name:{longest}}{needed}{taken}{said}{own}".rstrip())
    if chosen is not None and chosen.launch:
        lines.append(f"  {_chosen(chosen)}. Start it with: {chosen.launch}")
    return lines


def _chosen(one: Strategy) -> str:
    """Describe a strategy: `Fastest that fits: ZeRO 3 with offload (--allow zero writes ZeRO 3; set … yourself)`."""
    steps = []
    if one.allow:
        written = "it into the file" if not one.by_hand else "the sharding into the file"
        steps.append(f"{words.allowing(one.allow)} writes {written}")
    if one.by_hand:
        steps.append(f"set {one.by_hand} yourself")
    head = "Fits" if one.attempt.seconds is None else "Fastest that fits"
    return f"{head}: {one.name}" + (f" ({'; '.join(steps)})" if steps else "")


def variants(fit: Fit) -> list[Attempt]:
    """Return the answer, the alternatives and the original file, each once."""
    found = [one for one in (fit.best or fit.closest, *fit.alternatives, fit.original) if one is not None]
    seen: dict[tuple[str, ...], Attempt] = {}
    for one in found:
        seen.setdefault(tuple(f"{change.id} {change.fields}" for change in one.changes), one)
    return [one for one in seen.values() if one.prediction is not None]


def figure_cells(fit: Fit, one: Attempt) -> tuple[str, ...]:
    """Return what a variant reserves and leaves free, the time of a step, and its relative speed."""
    faster = words.ratio(fit.original, one)
    spare = (one.spare_bytes or 0) + one.margin_bytes
    return (
        words.reserved(one),
        readable(spare) if spare >= 0 else f"-{readable(-spare)}",
        words.step(one),
        "" if faster is None else times(faster),
    )


def price(fit: Fit, one: Attempt) -> str:
    """Return the drawbacks of a variant: it does not fit, is tight, or changes the training."""
    said = []
    if why := words.against(fit, one):
        said.append(why)
    elif one.tight:
        said.append("tight")
    if any(change.effect == "changes" for change in one.changes):
        said.append(EFFECTS["changes"])
    return f" ({', '.join(said)})" if said else ""


def _opened(fit: Fit) -> list[str]:
    if not fit.opened:
        return [words.nothing_opened()] if fit.best is None and not words.left_open(fit) else []
    title = "What would fit" if fit.best is None else "What would be faster"
    lines = [f"  {words.opened_words(word, one, fit.original)}" for word, one in fit.opened]
    return [style(title, bold=True), *lines]


def _others(fit: Fit) -> list[str]:
    lines = []
    why = words.fallen(fit)
    counted = f"{fit.considered:,} variants considered, {fit.simulated:,} simulated"
    lines.append(f"{counted}. Why the others were rejected: {why}" if why else counted)
    lines.append(words.smallest_card(fit))
    return lines


def rests_on(fit: Fit) -> list[str]:
    """Return the assumptions behind the figures."""
    one = fit.best or fit.closest or fit.original
    if one.prediction is None:
        return []
    matters = [note.text for note in one.prediction.assumed if note.kind == "run"]
    notes = [*matters, *(one.speed.assumptions if one.speed else ())]
    return [f"{style('Assumptions', bold=True)}: {'; '.join(dict.fromkeys(notes))}"] if notes else []


def next_lines(report: FitReport) -> list[str]:
    """Return what to run next: shell commands, then the command that writes the file."""
    best = report.fit.best
    if best is None:
        opened = [f"  {report.command} {words.allowing(allow)}" for allow, _ in report.fit.opened[:1] if report.command]
        return [style("Next", bold=True), *opened] if opened else []
    lines = [f"  {command}" for command in best.commands]
    if best.by_hand:
        return [style("Change by hand", bold=True), *(f"  {one}" for one in best.by_hand), *lines]
    if report.written:
        return [f"Written: {report.written}", *(["Before training:", *lines] if lines else [])]
    changed = best.document is not None and best.document.text != report.document.text
    if changed and report.command:
        lines.insert(0, f"  {report.command} --write")
    return [style("Next", bold=True), *lines] if lines else []
