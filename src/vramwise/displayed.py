"""Results that a notebook shows as a page by themselves: what the verbs give inherits `Displayed`.

The one place where something inside names a door, and only when a notebook asks: everything else renders from outside.
"""

from __future__ import annotations

from typing import TypeVar

_T = TypeVar("_T")


class Displayed:
    """Has a page of its own."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """What Jupyter and its like show in place of the text; None where there is nothing to show."""
        from vramwise.notebook import shown  # late: pages are for notebooks, and the notebook door imports the results

        return shown(self)


class Several(list[_T], Displayed):
    """A list of results, as one page."""

    __slots__ = ()
