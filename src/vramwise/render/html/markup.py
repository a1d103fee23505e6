"""Builds HTML so that nothing gets in unescaped: whatever is not `Markup` is text, and text is escaped.

Knows no page, only elements, attributes and unsafe characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from vramwise.render.outward import visible

_EMPTY = frozenset({"br", "col", "meta", "path", "rect"})
_MAX_TEXT = 2000


class Markup(str):
    """Text that already is HTML. Only this module and the page's own files create it."""

    __slots__ = ()


Child = str | Iterable[str] | None


def printable(text: str) -> str:
    """Return text with control characters, bidirectional overrides and lone surrogates escaped.

    Very long text is shortened.
    """
    if len(text) > _MAX_TEXT:
        text = text[: _MAX_TEXT - 1] + "…"
    return "\n".join(map(visible, text.split("\n")))


def text(value: str) -> Markup:
    """Escape a text unless it is markup."""
    return value if isinstance(value, Markup) else Markup(escape(printable(value)))


def breakable(name: str) -> Markup:
    """Return a dotted name that may be broken after dots and underscores."""
    return Markup(re.sub(r"([._])(?=\w)", r"\1<wbr>", text(name)))


def together(*children: Child) -> Markup:
    """Concatenate children; None is skipped."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, str):
            parts.append(text(child))
        elif child is not None:
            parts.extend(text(part) for part in child)
    return Markup("".join(parts))


def element(name: str, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """Return an element. `class_` becomes class, `aria_label` aria-label; None and False omit an attribute."""
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        words.append(word if value is True else f'{word}="{escape(printable(str(value)))}"')
    opening = " ".join(words)
    if name in _EMPTY:
        return Markup(f"<{opening}>" if name in ("br", "col", "meta") else f"<{opening}/>")
    return Markup(f"<{opening}>{together(*children)}</{name}>")
