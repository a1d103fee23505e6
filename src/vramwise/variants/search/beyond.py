"""Results beside the answer: alternatives, the closest variant if nothing fits, and why the others were rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from vramwise.variants.effort import OutOfEffort
from vramwise.variants.search.combinations import Pick
from vramwise.variants.search.finding import Search
from vramwise.variants.search.result import OPEN, TOO_LARGE, UNTRIED

SLOWER = "are slower"
# Limits on simulations beyond the answer and on their events in total: large runs would take seconds.
_MORE = 6
_MORE_EVENTS = 600_000
# The number of alternatives, and the share of the card by which each must need less than the one before.
_NAMED = 8
_APART = 0.01


def others(search: Search, best: Pick) -> list[Pick]:
    """Return slower variants that need less memory, the fastest first."""
    book = search.book
    found, least = [best], book.reserved_bytes(best)
    apart = int(book.room_bytes(best) * _APART)
    until, events = book.simulated + _MORE, book.events + _MORE_EVENTS
    with suppress(OutOfEffort):
        for _, pick in sorted((key, pick) for pick in _near(search, best) if (key := book.key(pick)) is not None):
            if book.simulated >= until or book.events >= events or len(found) > _NAMED:
                break
            if book.least_bytes(pick) > least - apart:
                continue
            if search.fits(pick) and book.reserved_bytes(pick) <= least - apart and search.holds(pick):
                found.append(pick)
                least = book.reserved_bytes(pick)
    return found[1:]


def _near(search: Search, best: Pick) -> set[Pick]:
    """Return candidates for the frontier.

    All variants if they are few; else every combination of deciding choices with the kernels of the answer, and the run
    as it is.
    """
    space = search.book.space
    if search.few:
        return set(space.picks())
    return {*space.contexts(best), space.start}


def closest(search: Search, most: int = _MORE) -> Pick | None:
    """Return the variant that needs least if nothing fits; if effort runs out, the least of the simulated ones.

    `most`: the number of simulations; with one, it is the variant with the smallest lower bound.
    """
    try:
        found = _closest(search, most)
    except OutOfEffort:
        search.ended_early = True
        found = search.book.least_reserved()
    if found is not None:
        search.book.holds(found)
    return found


def leanest(search: Search) -> list[tuple[int, Pick]]:
    """Return the variants with their lower bounds, the smallest first."""
    book = search.book
    picks = book.space.picks() if search.few else search.smallest()
    return sorted((book.least_bytes(pick), pick) for pick in picks if book.attempt(pick).run is not None)


def _closest(search: Search, most: int) -> Pick | None:
    """Return the least of all simulated variants, including the run as it is.

    A smaller micro-batch may use another kernel, so the order of the bounds is not decisive.
    """
    book = search.book
    found = book.least_reserved()
    until = book.simulated + most
    for least, pick in leanest(search):
        if book.simulated >= until or (found is not None and least >= book.reserved_bytes(found)):
            break
        book.judged_anyway(pick)
        found = book.least_reserved()
    return found


def considered(search: Search) -> int:
    """Return the number of variants, or of those counted before effort ran out."""
    space = search.book.space
    if search.few:
        return _total(1 for _ in space.picks())
    return _total(space.swaps(context) for context in space.contexts(space.start))


def _total(counts: Iterable[int]) -> int:
    """Return the sum of the counts until effort runs out."""
    found = 0
    with suppress(OutOfEffort):
        for count in counts:
            found += count
    return found


def fallen(search: Search, best: Pick | None, total: int) -> Counter[str]:
    """Return why the other variants were rejected, with their numbers."""
    book = search.book
    found = Counter(fell for pick, fell in book.fell() if search.context(pick) not in search.dead)
    found[TOO_LARGE] += _total(book.space.swaps(context) for context in sorted(search.dead))
    slower = best is not None and not search.ended_early
    found[SLOWER if slower else OPEN if search.left_open else UNTRIED] += max(
        0, total - found.total() - (best is not None)
    )
    return +found
