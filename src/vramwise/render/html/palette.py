"""Categories on the page: their order in the stack and the number of their colour.

Long-lived memory lies at the bottom of the stack, what comes and goes on top. The colours themselves are in page.css
(`.k0` … `.k11`): a palette that people with any kind of colour vision can tell apart.
"""

from __future__ import annotations

from collections.abc import Iterable

# In stack order, bottom first: the position is the number of the colour.
KNOWN = ("weights", "optimizer", "gradients", "workspace", "data", "activations", "logits", "temporary", "other")
EXTRA_COLOURS = 3  # for categories not named above


def stack_order(categories: Iterable[str]) -> list[str]:
    """Known categories bottom first, unknown ones above them in the order given."""
    given = list(dict.fromkeys(categories))
    return [name for name in KNOWN if name in given] + [name for name in given if name not in KNOWN]


def colours(categories: Iterable[str]) -> dict[str, int]:
    """The number of each category's colour."""
    strangers = 0
    numbers = {}
    for name in stack_order(categories):
        if name in KNOWN:
            numbers[name] = KNOWN.index(name)
        else:
            numbers[name] = len(KNOWN) + strangers % EXTRA_COLOURS
            strangers += 1
    return numbers
