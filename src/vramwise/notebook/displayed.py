"""Results that notebooks display as an HTML page: the results of the verbs inherit `Displayed`.

This is the only module below the interfaces that uses one (`notebook`), and only when a notebook asks for a page.
"""

from __future__ import annotations

from typing import TypeVar

_T = TypeVar("_T")


class Displayed:
    """A result that a notebook displays as a page."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """The HTML that Jupyter shows instead of the text; None if there is nothing to show."""
        from vramwise.notebook.frames import (
            shown,  # late: pages are for notebooks, and the notebook door imports the results
        )

        return shown(self)


class Several(list[_T], Displayed):
    """A list of results that is displayed as one page."""

    __slots__ = ()
