"""An HTML page without a script: head, policy, style and content."""

from __future__ import annotations

from vramwise.render.html import asset, digest
from vramwise.render.html.markup import Markup, element, together


def plain_page(title: str, body: Markup, own_style: str = "") -> str:
    """Return the whole file. `own_style` names a style file that follows the shared style."""
    style = asset("page.css") + (f"\n{asset(own_style)}" if own_style else "")
    policy = f"default-src 'none'; style-src {digest(style)}; base-uri 'none'; form-action 'none'"
    head = together(
        Markup('<meta charset="utf-8">'),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name_="color-scheme", content="light dark"),
        element("title", title),
        Markup(f"<style>{style}</style>"),
    )
    return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>{element("main", body)}</body>\n</html>\n'
