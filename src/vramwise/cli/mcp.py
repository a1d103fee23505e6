"""`vramwise mcp`: the server for agents; `add` writes a client's entry, `doctor` asks the server as a client would."""

from __future__ import annotations

from pathlib import Path

import click

from vramwise.cli.writing import say, say_all, say_note
from vramwise.errors import VramwiseError
from vramwise.mcp.clients import CLIENTS, add

_EXTRA = "the server needs the extra of that name: pip install 'vramwise[mcp]'"


@click.group("mcp", invoke_without_command=True)
@click.option("--http", is_flag=True, help="Serve streamable HTTP on 127.0.0.1 instead of standard input and output.")
@click.option("--port", type=click.IntRange(1, 65535), default=8765, show_default=True, help="With --http: the port.")
@click.option(
    "--online/--offline",
    default=False,
    show_default=True,
    help="Let predict_memory ask the hub for the config.json of a model that is not known here.",
)
@click.pass_context
def command(ctx: click.Context, http: bool, port: int, online: bool) -> None:
    """Serve the verbs to agents over the Model Context Protocol (MCP).

    Without a subcommand the server runs until its input is closed. Tools take the config's text; no file is read or
    written.
    """
    if ctx.invoked_subcommand is not None:
        return
    _need_sdk()
    from vramwise.mcp.server import serve_http, serve_stdio

    if http:
        serve_http(port, online=online, ready=lambda address: say(f"serving on {address}", err=True))
    else:
        serve_stdio(online=online)


@command.command("add")
@click.argument("client", type=click.Choice(list(CLIENTS)))
@click.option("--user", is_flag=True, help="In the user's own file instead of this folder's.")
def add_command(client: str, user: bool) -> None:
    """Write the server's entry for CLIENT into its file in this folder; what is there stays."""
    done = add(CLIENTS[client], Path.home() if user else Path.cwd(), user=user)
    say(f"wrote {done.path}" if done.written else f"{done.path} has it already")
    say_note(done.note)
    if not _has_sdk():
        say_note(_EXTRA)


@command.command("doctor")
def doctor_command() -> None:
    """Start the server as a client does, list its tools and call one."""
    _need_sdk()
    from vramwise.mcp.doctor import examine

    say_all(examine().lines())


def _has_sdk() -> bool:
    from importlib.util import find_spec

    return find_spec("mcp") is not None


def _need_sdk() -> None:
    if not _has_sdk():
        raise VramwiseError(_EXTRA)
