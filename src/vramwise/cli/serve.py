"""`vramwise serve`: the page, on this machine alone."""

from __future__ import annotations

import gc

import click

from vramwise.cli.writing import say
from vramwise.page.serving import make_page_server, page_folder

# Commands collect late, for they end soon. What each request leaves behind would be a hundred megabytes by then.
_SOON = (700, 10, 10)


@click.command("serve")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8764, show_default=True, help="The port; 0: any that is free."
)
@click.option("--folder", metavar="FOLDER", help="The built page, where it is not in this installation.")
def command(port: int, folder: str | None) -> None:
    """Serve the page on 127.0.0.1: checks, predictions and fits in the browser.

    Everything is computed in the browser; nothing is sent here. Ends with Ctrl-C.
    """
    server = make_page_server(page_folder(folder), port)
    gc.set_threshold(*_SOON)
    say(f"serving on {server.address} (Ctrl-C ends it)", err=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        say("", err=True)
    finally:
        server.server_close()
