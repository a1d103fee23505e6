"""`vramwise serve`: serves the web page on this machine only."""

from __future__ import annotations

import os
import sys
import webbrowser

import click

from vramwise.cli.writing import say
from vramwise.page.serving import served_page


@click.command("serve")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8764,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option("--folder", metavar="FOLDER", help="Serve a page that was built with `make page` instead.")
def command(port: int, folder: str | None) -> None:
    """Serve the web page on 127.0.0.1, to check, predict and fit configs in the browser.

    Nothing leaves this machine, and only the printed link can ask. Press Ctrl-C to stop.
    """
    with served_page(folder, port) as server:
        say(f"serving on {server.address} (press Ctrl-C to stop)", err=True)
        if _has_desktop():
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("", err=True)


def _has_desktop() -> bool:
    """Return whether a person started this on a screen that a browser can open on."""
    on_screen = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return sys.stderr.isatty() and on_screen
