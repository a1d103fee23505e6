"""Margins of verdicts, from first predictions: how far off they were where something about the run was new.

python tests/measured/calibration.py             # each draw, trainer, family and feature, judged with the margins of all others
python tests/measured/calibration.py --write     # writes facts/margins.json, docs/calibration.md and its picture
python tests/measured/calibration.py --check     # only says whether they are current

A run is judged on capacities spread evenly between 0.7 and 1.4 times its measured peak: a verdict "fits" is right where
the capacity is not below the peak, "does not fit" where it is. Margins of every kind cover the same share of its runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

HERE = Path(__file__).resolve().parents[2] / "bench"
sys.path.append(str(HERE.parent / "scripts"))
from generated import write_or_check  # noqa: E402

FIRST = HERE / "results" / "first_predictions.jsonl"
MARGINS = HERE.parent / "src" / "vramwise" / "facts" / "margins.json"
DOCS = HERE.parent / "docs"
PAGE, PICTURE = DOCS / "calibration.md", DOCS / "pictures" / "calibration.svg"
LOWEST, HIGHEST = 0.7, 1.4
# How often verdicts are to be right, and how many capacities may stay without one.
GOAL, MOST_OPEN = 0.97, 0.15
# Trainers whose runs are in the record under another's name.
SAME = {"hf-trainer": "transformers"}
# The share of runs of each kind that a margin covers.
COVERED = 0.9
# Rows of what others printed on other cards are known by a guess, which is in their errors: half is covered.
COVERED_PUBLISHED = 0.5
PUBLISHED = "published by Unsloth"
# Nothing new about the run.
BASE = "base"
_FEWEST = 10
SIDES = ("more", "less")


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """A run with its first prediction. `new`: what had not been measured before; `off`: predicted by measured."""

    draw: str
    name: str
    trainer: str
    family: str
    new: tuple[str, ...]
    features: tuple[str, ...]
    off: float


@dataclass(slots=True, kw_only=True)
class Tally:
    """How much of the capacities got which verdict."""

    fits: float = 0.0
    fits_wrongly: float = 0.0
    misfits: float = 0.0
    misfits_wrongly: float = 0.0
    whole: float = 0.0

    def add(self, off: float, more: float, less: float) -> None:
        """Judge one run with these margins."""
        fits_from, misfits_to = off * (1 + more), off * (1 - less)
        self.whole += HIGHEST - LOWEST
        self.fits += _length(fits_from, HIGHEST)
        self.fits_wrongly += _length(fits_from, 1.0)
        self.misfits += _length(LOWEST, misfits_to)
        self.misfits_wrongly += _length(1.0, misfits_to)

    @property
    def right(self) -> tuple[float, float, float]:
        """The shares of right verdicts of both kinds, and of capacities without a verdict."""
        good = 1 - self.fits_wrongly / self.fits if self.fits else 1.0
        bad = 1 - self.misfits_wrongly / self.misfits if self.misfits else 1.0
        return good, bad, 1 - (self.fits + self.misfits) / self.whole if self.whole else 0.0


def _length(low: float, high: float) -> float:
    return max(0.0, min(high, HIGHEST) - max(low, LOWEST))


def read() -> list[First]:
    """Return the first predictions."""
    found = []
    for one in map(json.loads, FIRST.read_text().splitlines()):
        off = one.pop("predicted") / one.pop("measured")
        found.append(First(**{name: tuple(v) if isinstance(v, list) else v for name, v in one.items()}, off=off))
    return found


Margins = dict[str, dict[str, float]]
Judged = tuple[First, dict[str, float]]


def margins(runs: Sequence[First], share: float = COVERED) -> Margins:
    """Return the margins that cover this share of runs: by how much, as shares, a figure may be exceeded or missed."""
    base = _covering([run for run in runs if not run.new], share)
    found = {BASE: base}
    for kind in sorted({run.new[0] for run in runs if len(run.new) == 1}):
        whole = _covering([run for run in runs if run.new == (kind,)], COVERED_PUBLISHED if kind == "card" else share)
        found[kind] = {side: max(0.0, whole[side] ** 2 - base[side] ** 2) ** 0.5 for side in SIDES}
    return {kind: {side: round(margin[side], 3) for side in SIDES} for kind, margin in found.items()}


def _covering(runs: Sequence[First], share: float) -> dict[str, float]:
    needed = {"more": [1 / run.off - 1 for run in runs], "less": [1 - 1 / run.off for run in runs]}
    return {side: max(0.0, _quantile(needed[side], share)) for side in SIDES}


def _quantile(values: Iterable[float], share: float) -> float:
    """Return what this share of further values like these will not exceed (hence one more than there are)."""
    ranked = sorted(values)
    return ranked[min(len(ranked), ceil((len(ranked) + 1) * share)) - 1] if ranked else 0.0


def together(known: Margins, kinds: Iterable[str]) -> dict[str, float]:
    """Return the margin of several kinds, as the program adds them up; a kind never calibrated adds nothing."""
    parts = [known[kind] for kind in (BASE, *dict.fromkeys(kinds)) if kind in known]
    return {side: sum(part[side] ** 2 for part in parts) ** 0.5 for side in SIDES}


def left_out(runs: Sequence[First], inside: Sequence[First], share: float, extra: str = "") -> Iterator[Judged]:
    """Yield the runs of a group with the margins of all others. `extra`: what is new to them without the group."""
    group = set(map(id, inside))
    known = margins([run for run in runs if id(run) not in group], share)
    for run in inside:
        yield run, together(known, (*run.new, extra) if extra else run.new)


def by_draw(runs: Sequence[First], share: float) -> Iterator[Judged]:
    """Yield every run measured here, each with the margins of all other draws."""
    for draw in sorted({run.draw for run in runs} - {PUBLISHED}):
        yield from left_out(runs, [run for run in runs if run.draw == draw], share)


def judged(found: Iterable[Judged]) -> Tally:
    """Return how runs with these margins are judged."""
    tally = Tally()
    for run, margin in found:
        tally.add(run.off, margin["more"], margin["less"])
    return tally


def covered(runs: Sequence[First], share: float) -> dict[str, float]:
    """Return the shares of left-out runs that margins cover which were made to cover this share."""
    found = list(by_draw(runs, share))
    within = {"more": lambda off, margin: off * (1 + margin) >= 1, "less": lambda off, margin: off * (1 - margin) <= 1}
    return {
        side: sum(good(run.off, margin[side]) for run, margin in found) / len(found) for side, good in within.items()
    }


def groups(runs: Sequence[First]) -> Iterator[tuple[str, str, int, Tally]]:
    """Yield what is left out, its name, its number of runs and how they are judged; with all of a kind at the end."""
    kinds: list[tuple[str, str, Callable[[First], Iterable[str]]]] = [
        ("draw", "", lambda run: [run.draw]),
        ("trainer", "trainer", lambda run: [run.trainer]),
        ("family", "family", lambda run: [run.family] if run.family else []),
        ("feature", "feature", lambda run: run.features),
    ]
    for kind, extra, names_of in kinds:
        every: list[Judged] = []
        for name in sorted({name for run in runs for name in names_of(run)}):
            inside = [run for run in runs if name in names_of(run) and (run.draw != PUBLISHED or kind == "draw")]
            found = list(left_out(runs, inside, COVERED, extra))
            every += [] if name == PUBLISHED else found
            if len(inside) >= _FEWEST or kind == "draw":
                yield kind, name, len(inside), judged(found)
        yield kind, "all", len(every), judged(every)


_SIZE, _EDGE = 300, 46


def picture(runs: Sequence[First]) -> str:
    """Return an SVG: the share of runs that margins should cover, and the share that they cover of other draws."""
    shares = [0.5 + step / 100 for step in range(0, 48, 2)]
    points = [(share, covered(runs, share)) for share in shares]
    lines = []
    for side, colour in (("more", "#b3402a"), ("less", "#2a5fb3")):
        path = " ".join(f"{_at(share)[0]:.1f},{_at(true[side])[1]:.1f}" for share, true in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    ticks = "".join(
        f'<text x="{_at(tick)[0]:.0f}" y="{_SIZE - 28}" text-anchor="middle">{tick:.0%}</text>'
        f'<text x="{_EDGE - 6}" y="{_at(tick)[1] + 4:.0f}" text-anchor="end">{tick:.0%}</text>'
        for tick in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    )
    (left, bottom), (right, top) = _at(0.5), _at(1.0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE + 130} {_SIZE}" font-family="sans-serif" '
        f'font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
        f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#888"/>\n'
        f'<path d="M{left} {bottom}L{right} {top}" stroke="#bbb" stroke-dasharray="4"/>\n{ticks}\n'
        + "\n".join(lines)
        + f'\n<text x="{_SIZE}" y="{top + 20}" fill="#b3402a">needs no more</text>'
        f'<text x="{_SIZE}" y="{top + 36}" fill="#2a5fb3">needs no less</text>'
        f'<text x="{_EDGE}" y="{_SIZE - 10}">covered, as stated (other draws)</text>'
        f'<text x="{_EDGE}" y="12">covered, in the draw that was left out</text>\n</svg>\n'
    )


def _at(share: float) -> tuple[float, float]:
    """Return where a share is on the axes."""
    along = (share - 0.5) * 2 * (_SIZE - 2 * _EDGE)
    return _EDGE + along, _SIZE - _EDGE - along


def page(runs: Sequence[First]) -> str:
    """Return the tables, in Markdown."""
    counts = {kind: sum(run.new == ((kind,) if kind != BASE else ()) for run in runs) for kind in margins(runs)}
    lines = ["| what is new about a run | runs | it may need more by | less by |", "|---|---|---|---|"]
    for kind, margin in margins(runs).items():
        sides = " | ".join(f"{margin[side]:.1%}".replace("%", " %") for side in SIDES)
        lines.append(f"| {WORDS[kind]} | {counts[kind]} | {sides} |")
    lines += ["", "| left out | | runs | ✓ right | ✗ right | may not fit |", "|---|---|---|---|---|---|"]
    for kind, name, count, tally in groups(runs):
        shares = " | ".join(f"{100 * part:.1f} %" for part in tally.right)
        lines.append(f"| {kind} | {name if name != 'all' else '**all**'} | {count} | {shares} |")
    return "\n".join([*lines, "", *below(runs)]) + "\n"


def below(runs: Sequence[First]) -> Iterator[str]:
    """Yield the groups whose verdicts are right less often than the goal, or that leave too much open."""
    found = [(kind, name, tally.right) for kind, name, _, tally in groups(runs)]
    for side, sign in enumerate("✓✗"):
        weak = sorted((right[side], f"{kind} {name}") for kind, name, right in found if right[side] < GOAL)
        shown = ", ".join(f"{name} ({100 * share:.1f} %)" for share, name in weak)
        yield f"- {sign} right in less than {100 * GOAL:.0f} %: {shown or 'none'}."
    wide = [f"{kind} {name} ({100 * right[2]:.1f} %)" for kind, name, right in found if right[2] > MOST_OPEN]
    yield f"- More than {100 * MOST_OPEN:.0f} % of capacities without a verdict: {', '.join(wide) or 'none'}."


WORDS = {
    BASE: "nothing",
    "card": "the card (named, and not an H200)",
    "family": "the model family",
    "feature": "a feature, with this trainer",
    "ranks": "several cards",
    "trainer": "the trainer",
    "version": "a release that is known, and was not measured",
}


def main() -> int:
    """Print the tables; with --write, write the files, and with --check compare them."""
    runs = read()
    if not {"--write", "--check"} & set(sys.argv):
        print(page(runs))
        return 0
    document = {"covered": COVERED, "runs": len(runs), "margins": margins(runs), "measured_as": SAME}
    head, mark, _ = PAGE.read_text(encoding="utf-8").partition("<!-- tests/measured/calibration.py -->\n")
    files = {MARGINS: json.dumps(document, indent=1) + "\n", PICTURE: picture(runs), PAGE: head + mark + page(runs)}
    return write_or_check(files)


if __name__ == "__main__":
    sys.exit(main())
