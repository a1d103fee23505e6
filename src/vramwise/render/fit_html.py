"""A fit as one self-contained page: the answer, the frontier as a chart, the diff, and a table of variants."""

from __future__ import annotations

from pathlib import PurePath

from vramwise.render import fit_words as words
from vramwise.render.fit_text import diff_lines, figure_cells, next_lines, price, rests_on, variants
from vramwise.render.frontier import frontier
from vramwise.render.html import plain_page
from vramwise.render.html.markup import Markup, element, together
from vramwise.render.html.sections import card, header, table
from vramwise.render.outward import unstyle
from vramwise.render.verdict_text import EFFECTS, state_of
from vramwise.variants.attempt import Attempt
from vramwise.variants.search.result import Fit
from vramwise.verbs.fitting.report import FitReport

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
