"""`vramwise mcp`: the server for agents; `add` writes a client's entry, `doctor` asks the server as a client would."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from vramwise.cli.writing import say, say_all, say_note
from vramwise.errors import VramwiseError
from vramwise.mcp.clients import CLIENTS, add
from vramwise.mcp.defaults import PORT, TIME_LIMIT, TOKEN_VARIABLE, server_url

_EXTRA = "the server needs the extra of that name: pip install 'vramwise[mcp]'"


_PORT = click.option(
    "--port", type=click.IntRange(1, 65535), default=PORT, show_default=True, help="With --http: the port."
)
_TOKEN = click.option(
    "--token", metavar="TEXT", envvar=TOKEN_VARIABLE, show_envvar=True, help="With --http: the token of the server."
)


@click.group("mcp", invoke_without_command=True)
@click.option("--http", is_flag=True, help="Serve streamable HTTP on 127.0.0.1 instead of standard input and output.")
@_PORT
@_TOKEN
@click.option("--no-token", is_flag=True, help="With --http: answer every user of this machine.")
@click.option(
    "--time-limit",
    type=click.IntRange(1, 86400),
    metavar="SECONDS",
    default=TIME_LIMIT,
    show_default=True,
    help="Stop a call that takes longer.",
)
@click.option(
    "--online/--offline",
    default=False,
    show_default=True,
    help="Let predict_memory ask the hub for the config.json of a model that is not known here.",
)
@click.pass_context
def command(
    ctx: click.Context, http: bool, port: int, token: str | None, no_token: bool, time_limit: int, online: bool
) -> None:
    """Serve the verbs to agents over the Model Context Protocol (MCP).

    Without a subcommand the server runs until its input is closed. Tools take the config's text; no file is read or
    written. With --http, requests need a token: a random one, printed at the start, or the one of --token.
    """
    if ctx.invoked_subcommand is not None:
        return
    if no_token and ctx.get_parameter_source("token") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--token and --no-token exclude each other: give one of them")
    _need_sdk()
    if not http:
        from vramwise.mcp.server import serve_stdio  # late: it needs the SDK, which is an extra

        serve_stdio(online=online, seconds=time_limit)
        return
    from vramwise.mcp.http import serve_http, usable_token  # late: it needs the SDK, which is an extra

    wanted = None if no_token else usable_token(token)
    serve_http(
        port,
        token=wanted,
        seconds=time_limit,
        online=online,
        ready=lambda address: say_all(_announced(address, wanted, random=token is None), err=True),
    )


def _announced(address: str, token: str | None, *, random: bool) -> list[str]:
    """Where the server answers, and to whom. A token that the user chose is not repeated: it may be kept secret."""
    if token is None:
        return [f"serving on {address}", "warning: without a token any user of this machine can call this server"]
    if not random:
        return [f"serving on {address} (requests need the token that was given)"]
    return [
        f"serving on {address}?token={token}",
        f"the token works as ?token=… and as the header 'Authorization: Bearer …'; {TOKEN_VARIABLE} keeps it the same",
    ]


@command.command("add")
@click.argument("client", type=click.Choice(list(CLIENTS)))
@click.option("--user", is_flag=True, help="In the user's own file instead of this folder's.")
@click.option("--http", is_flag=True, help="An entry for a server that runs already: `vramwise mcp --http`.")
@_PORT
def add_command(client: str, user: bool, http: bool, port: int) -> None:
    """Write the server's entry for CLIENT into its file in this folder; what is there stays.

    With --http the entry refers to the environment variable VRAMWISE_MCP_TOKEN for the token.
    """
    done = add(CLIENTS[client], Path.home() if user else Path.cwd(), user=user, port=port if http else None)
    say(f"wrote {done.path}" if done.written else f"{done.path} has it already")
    say_note(done.note)
    if http:
        say_note(f"set {TOKEN_VARIABLE} to the same token for {client} and for `vramwise mcp --http`")
    if not _has_sdk():
        say_note(_EXTRA)


@command.command("doctor")
@click.option("--http", is_flag=True, help="Ask a server that runs already: `vramwise mcp --http`.")
@_PORT
@_TOKEN
def doctor_command(http: bool, port: int, token: str | None) -> None:
    """Start the server as a client does, list its tools and call one."""
    _need_sdk()
    from vramwise.mcp.doctor import examine  # late: it needs the SDK, which is an extra

    say_all(examine(server_url(port), token).lines() if http else examine().lines())


def _has_sdk() -> bool:
    from importlib.util import find_spec

    return find_spec("mcp") is not None


def _need_sdk() -> None:
    if not _has_sdk():
        raise VramwiseError(_EXTRA)
