"""Categories on the page: their order in the stack and the number of their colour.

Long-lived memory is at the bottom of the stack, short-lived memory on top. The colours are in page.css (`.k0` …
`.k11`), a palette that people with any kind of colour vision can distinguish.
"""

from __future__ import annotations

from collections.abc import Iterable

# In stack order, bottom first: the position is the number of the colour.
KNOWN = ("weights", "optimizer", "gradients", "workspace", "data", "activations", "logits", "temporary", "other")
EXTRA_COLOURS = 3  # for categories not named above


def stack_order(categories: Iterable[str]) -> list[str]:
    """Return known categories bottom first, then unknown ones in the given order."""
    given = list(dict.fromkeys(categories))
    return [name for name in KNOWN if name in given] + [name for name in given if name not in KNOWN]


def colours(categories: Iterable[str]) -> dict[str, int]:
    """Return the colour number of each category."""
    strangers = 0
    numbers = {}
    for name in stack_order(categories):
        if name in KNOWN:
            numbers[name] = KNOWN.index(name)
        else:
            numbers[name] = len(KNOWN) + strangers % EXTRA_COLOURS
            strangers += 1
    return numbers
