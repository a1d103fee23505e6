"""A fit as one self-contained page: the answer, the frontier as a chart, the diff, and a table of variants.

The frontier is an SVG chart: reserved memory against speed for each variant, and the card's limit. Each point is a
config: pointing at it, or focusing it with the keyboard, shows its edits below the chart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor
from pathlib import PurePath
from textwrap import wrap

from vramwise.render import fit_words as words
from vramwise.render.fit_text import diff_lines, figure_cells, next_lines, price, rests_on, variants
from vramwise.render.html import plain_page
from vramwise.render.html.markup import Markup, element, together
from vramwise.render.html.sections import card, header, table
from vramwise.render.outward import unstyle
from vramwise.render.speed_text import times
from vramwise.render.verdict_text import EFFECTS, setting, state_of
from vramwise.types.actions import action
from vramwise.units import GIB, gib, readable
from vramwise.variants.attempt import Attempt
from vramwise.variants.search.result import Fit
from vramwise.verbs.fit import FitReport

_HEAD = ("variant", "reserved", "spare", "a step", "speed", "")


def fit_page(report: FitReport) -> str:
    """Return the whole page, which needs no script and no network."""
    fit = report.fit
    name = PurePath(report.document.path).name
    target = words.card_of(fit)
    title = f"{name}: what fits {target.name}" if target else f"{name}: what fits"
    top = header(title, [words.answer(fit, report.asked), *words.reasons(report)], "", "", state_of(words.kind(fit)))
    return plain_page(title, together(top, fit_body(report)), "fit.css")


def fit_body(report: FitReport) -> Markup:
    """Return everything except the answer: the frontier, the diff, the variants, and what else would fit."""
    fit = report.fit
    drawn = frontier(fit, variants(fit))
    return together(
        card("frontier", "Memory against speed", *drawn) if drawn else None,
        element("div", _diff(report), _effects(fit), class_="halves"),
        _table(fit),
        _opened(fit),
        _rest(fit),
    )


def _diff(report: FitReport) -> Markup | None:
    lines = [unstyle(line) for line in diff_lines(report)][2:]
    commands = [line.strip() for line in map(unstyle, next_lines(report)) if line.startswith("  ")]
    if not lines and not commands:
        return None
    tags = {"+": "ins", "-": "del"}
    coloured = [element(tags[line[:1]], line) if line[:1] in tags else together(line) for line in lines]
    code = [together(line, "\n") for line in coloured]
    block = element("pre", element("code", *code), tabindex=0) if lines else None
    following = element("div", *(element("code", line) for line in commands), class_="next") if commands else None
    return card("changes", "What to change" if lines else "What to run", block, following)


def _effects(fit: Fit) -> Markup | None:
    changes = fit.best.changes if fit.best is not None else ()
    if not changes:
        return None
    items = [
        element(
            "li",
            element("p", element("b", Attempt(changes=(one,)).words), f" ({EFFECTS[one.effect]})"),
            element("p", one.why),
        )
        for one in changes
    ]
    return card("why", "What it does to the training", element("ul", *items, class_="findings"))


def _table(fit: Fit) -> Markup:
    rows = [_row(fit, one) for one in variants(fit)]
    caption = "The answer, the alternatives, and your unchanged file"
    return card("variants", "Variants", table("all variants", caption, _HEAD, rows))


def _row(fit: Fit, one: Attempt) -> tuple[Markup | str, ...]:
    said = one.words
    name = element("b", said) if one is fit.best else said
    return (name, *figure_cells(fit, one), price(fit, one).strip(" ()"))


def _opened(fit: Fit) -> Markup | None:
    if not fit.opened:
        return element("p", words.nothing_opened()) if fit.best is None else None
    items = [element("li", words.opened_words(word, one, fit.original)) for word, one in fit.opened]
    title = "What would fit" if fit.best is None else "What would be faster"
    return card("opened", title, element("ul", *items))


def _rest(fit: Fit) -> Markup:
    counted = f"{fit.considered:,} variants considered, {fit.simulated:,} simulated"
    ranked = sorted(fit.fallen.items(), key=lambda item: (-item[1], item[0]))
    fell = element("ul", *(element("li", f"{count:,} {why}") for why, count in ranked)) if ranked else None
    notes = element("ul", *(element("li", unstyle(line)) for line in rests_on(fit)))
    folded = element("details", element("summary", "Assumptions"), notes)
    return card("others", "The others", element("p", counted), fell, element("p", words.smallest_card(fit)), folded)


# Drawn twice, and the page shows one of them: the text of a wide chart is too small on a phone.
_WIDE, _NARROW = 1000, 420
_PLOT = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 30, 26, 50
# Height of a line and width of a letter in pixels: larger in the narrow chart, because it is shrunk.
_LETTERS = {_WIDE: (18, 7.6), _NARROW: (21, 8.8)}
_MOST_LINES = 12
_TICKS = 8


def frontier(fit: Fit, variants: Sequence[Attempt]) -> list[Markup]:
    """Return the charts and their legend; empty if speeds are unknown."""
    weighed = [*variants, *(one for _, one in fit.opened)]
    drawn = [one for one in weighed if one.reserved_bytes and words.ratio(fit.original, one)]
    if len(drawn) < 2:
        return []
    keys = {kind: name for kind, name in _KINDS.items() if any(_kind(fit, one) == kind for one in drawn)}
    listed = [element("li", _dot(kind), action(name) if kind == "opened" else name) for kind, name in keys.items()]
    pictures = [_Drawing(fit, drawn, width).draw(name) for name, width in (("wide", _WIDE), ("narrow", _NARROW))]
    return [*pictures, element("ul", *listed, class_="frontier-keys")]


_KINDS = {
    "best": "the answer",
    "also": "also fits",
    "file": "your original file",
    "opened": "allowed only",
    "over": "does not fit",
}


def _kind(fit: Fit, one: Attempt) -> str:
    if one is fit.best:
        return "best"
    if not one.fits:
        return "over"
    if any(one is opened for _, opened in fit.opened):
        return "opened"
    return "also" if one.changes else "file"


def _dot(kind: str) -> Markup:
    return element("svg", element("circle", class_=kind, cx=7, cy=7, r=5), viewBox="0 0 14 14", aria_hidden="true")


class _Drawing:
    """Memory on the x axis, speed on the y axis: the best variant is at the top, left of the card's limit."""

    def __init__(self, fit: Fit, variants: Sequence[Attempt], width: int) -> None:
        self._fit, self._variants, self._width = fit, variants, width
        self._room = next((one.prediction.capacity_bytes for one in variants if one.prediction), None)
        sizes = [one.reserved_bytes or 0 for one in variants] + ([self._room] if self._room else [])
        low, high = min(sizes), max(sizes)
        self._from = 0.0 if low < 0.5 * high else 0.9 * low
        self._to = 1.04 * high
        speeds = [words.ratio(fit.original, one) or 0.0 for one in variants]
        edge = max(0.05, 0.15 * (max(speeds) - min(speeds)))
        self._slow, self._fast = max(0.0, min(speeds) - edge), max(speeds) + edge
        self._line_height, self._letter = _LETTERS[width]
        self._texts = [self._told(one) for one in variants]
        self._height = _TOP + _PLOT + _BOTTOM + self._line_height * max(len(text) for text in self._texts) + 8

    def draw(self, name: str) -> Markup:
        """Return the SVG, with the class that says where it is shown."""
        shown = self._fit.best or self._fit.closest
        points = [
            self._point(one, text, shown=one is shown) for one, text in zip(self._variants, self._texts, strict=True)
        ]
        return element(
            "svg",
            *self._grid(),
            *self._card(),
            self._line(),
            *points,
            class_=f"frontier {name}",
            viewBox=f"0 0 {self._width} {self._height}",
            role="group",
            aria_label="Variants by the memory they reserve and by speed",
        )

    def _x(self, size_bytes: float) -> float:
        return _LEFT + (self._width - _LEFT - _RIGHT) * (size_bytes - self._from) / (self._to - self._from)

    def _y(self, speed: float) -> float:
        return _TOP + _PLOT * (1 - (speed - self._slow) / (self._fast - self._slow))

    def _grid(self) -> Iterator[Markup]:
        ticks = _TICKS if self._width == _WIDE else _TICKS // 2
        step = _round_step((self._to - self._from) / GIB / ticks) * GIB
        level = ceil(self._from / step) * step
        foot = _TOP + _PLOT
        while level <= self._to:
            x = f"{self._x(level):.1f}"
            yield element("line", class_="grid", x1=x, x2=x, y1=_TOP, y2=foot)
            yield element("text", f"{level / GIB:g}", x=x, y=foot + 18, text_anchor="middle")
            level += step
        yield element("text", "GiB reserved", x=self._width - _RIGHT, y=foot + 36, text_anchor="end")
        pace = _round_step((self._fast - self._slow) / 5)
        for number in range(ceil(self._slow / pace), floor(self._fast / pace) + 1):
            y = f"{self._y(number * pace):.1f}"
            yield element("line", class_="grid", x1=_LEFT, x2=self._width - _RIGHT, y1=y, y2=y)
            yield element(
                "text", f"{number * pace:.3g} ×", x=_LEFT - 6, y=y, text_anchor="end", dominant_baseline="middle"
            )
        yield element("text", "speed, your file = 1" if self._width == _WIDE else "speed", x=4, y=14)

    def _card(self) -> Iterator[Markup]:
        """Yield the card's limit, and the margin before it."""
        if not self._room:
            return
        one = self._fit.best or self._fit.closest or self._fit.original
        edge, start = self._x(self._room), self._x(self._room - one.margin_bytes)
        if edge - start > 1:
            yield element("rect", class_="margin", x=f"{start:.1f}", y=_TOP, width=f"{edge - start:.1f}", height=_PLOT)
        yield element("line", class_="edge", x1=f"{edge:.1f}", x2=f"{edge:.1f}", y1=_TOP - 6, y2=_TOP + _PLOT)
        card = words.card_of(self._fit)
        name = f"{card.name}: {gib(self._room)}" if card else gib(self._room)
        anchor = "end" if edge > self._width / 2 else "start"
        yield element("text", name, class_="edge-text", x=f"{edge:.1f}", y=_TOP - 9, text_anchor=anchor)

    def _line(self) -> Markup | None:
        """Return the line that connects the variants that fit, or None."""
        fitting = [one for one in self._variants if _kind(self._fit, one) in ("best", "also")]
        ends = sorted((self._at(one) for one in fitting), key=lambda at: at[0])
        if len(ends) < 2:
            return None
        return element("path", class_="line", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in ends))

    def _at(self, one: Attempt) -> tuple[float, float]:
        return self._x(one.reserved_bytes or 0), self._y(words.ratio(self._fit.original, one) or 0.0)

    def _point(self, one: Attempt, told: Sequence[str], *, shown: bool) -> Markup:
        x, y = (f"{value:.1f}" for value in self._at(one))
        below = _TOP + _PLOT + _BOTTOM + 12
        lines = [
            element("text", line, class_=None if at else "head", x=_LEFT // 2, y=below + at * self._line_height)
            for at, line in enumerate(told)
        ]
        kind = _kind(self._fit, one)
        return element(
            "g",
            element("title", "\n".join(told)),
            element("circle", class_="hit", cx=x, cy=y, r=16),
            element("circle", cx=x, cy=y, r=8 if kind == "best" else 6),
            element("g", *lines, class_="says", aria_hidden="true"),
            class_=f"point {kind}" + (" shown" if shown else ""),
            tabindex=0,
            role="img",
            aria_label=". ".join(told),
        )

    def _told(self, one: Attempt) -> list[str]:
        """Describe a config in lines that fit the chart: its changes, figures and edits."""
        letters = int((self._width - _LEFT) / self._letter)
        faster = words.ratio(self._fit.original, one)
        spare = (one.spare_bytes or 0) + one.margin_bytes
        room = f"{readable(spare)} to spare" if spare >= 0 else f"{readable(-spare)} short"
        figures = [f"{gib(one.reserved_bytes or 0)} reserved, {room}", f"{words.step(one)} a step"]
        figures += [] if faster is None else [f"{times(faster)} the speed"]
        edits = [*map(setting, one.edits), *one.by_hand, *one.commands]
        lines = wrap(one.words, letters) + wrap(", ".join(figures), letters)
        lines += wrap("; ".join(edits), letters)
        return lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 1], "…"]


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5, 10, … times a power of ten that is at least `least`."""
    power = 1.0
    while power > least:
        power /= 10
    while power * 10 <= least:
        power *= 10
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least)
