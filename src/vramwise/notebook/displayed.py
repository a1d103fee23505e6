"""Results of the verbs inherit `Displayed`: notebooks display them as an HTML page, and they print as text.

This is the only module below the interfaces that uses one (`notebook`), and only when a page or a text is asked for.
"""

from __future__ import annotations

from typing import Any, TypeVar

_T = TypeVar("_T")


class Displayed:
    """A result that a notebook displays as a page, and that prints as the text of its command."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """The HTML that Jupyter shows instead of the text; None if there is nothing to show."""
        from vramwise.notebook.frames import (
            shown,  # late: pages are for notebooks, and the notebook door imports the results
        )

        return shown(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython shows in a terminal."""
        printer.text(str(self))

    def __str__(self) -> str:
        """The text that the command prints for this result; without one, its fields."""
        from vramwise.notebook.frames import as_text

        return as_text(self) or repr(self)


class Several(list[_T], Displayed):
    """A list of results that is displayed as one page."""

    __slots__ = ()
