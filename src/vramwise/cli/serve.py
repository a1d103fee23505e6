"""`vramwise serve`: serves the web page on this machine only."""

from __future__ import annotations

import gc

import click

from vramwise.cli.writing import say
from vramwise.page.serving import make_page_server, page_folder

# Commands delay garbage collection because they end soon. A server must collect often: requests would leave a hundred
# megabytes behind.
_SOON = (700, 10, 10)


@click.command("serve")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8764,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option("--folder", metavar="FOLDER", help="Folder of the built page, if this installation has none.")
def command(port: int, folder: str | None) -> None:
    """Serve the web page on 127.0.0.1, to check, predict and fit configs in the browser.

    Everything runs in the browser; no data is sent to this server. Press Ctrl-C to stop.
    """
    server = make_page_server(page_folder(folder), port)
    gc.set_threshold(*_SOON)
    say(f"serving on {server.address} (press Ctrl-C to stop)", err=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        say("", err=True)
    finally:
        server.server_close()
