"""`vramwise mcp`: the server for agents, over standard input and output."""

from __future__ import annotations

from importlib.util import find_spec

import click

from vramwise.errors import VramwiseError


@click.command("mcp")
@click.option(
    "--time-limit",
    type=click.IntRange(1, 86400),
    metavar="SECONDS",
    default=60,
    show_default=True,
    help="Time limit for one call.",
)
@click.option(
    "--online/--offline",
    default=False,
    show_default=True,
    help="Let predict_memory fetch the config.json of unknown models from the hub.",
)
def command(time_limit: int, online: bool) -> None:
    """Run the MCP (Model Context Protocol) server, for AI agents.

    The agent starts this command; the server runs until its input is closed. Tools take the text of a config; no file
    is read or written.
    """
    if find_spec("mcp") is None:
        raise VramwiseError("the MCP server needs an extra package: pip install 'vramwise[mcp]'")
    from vramwise.mcp.server import serve_stdio  # late: it needs the SDK, which is an extra

    serve_stdio(online=online, seconds=time_limit)
