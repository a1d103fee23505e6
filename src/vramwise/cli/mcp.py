"""`vramwise mcp`: the server for agents; `add` writes a client's entry, `doctor` tests the server like a client."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from vramwise.cli.writing import say, say_all, say_note
from vramwise.errors import VramwiseError
from vramwise.mcp.clients import CLIENTS, add
from vramwise.mcp.defaults import PORT, TIME_LIMIT, TOKEN_VARIABLE, server_url

_EXTRA = "the MCP server needs an extra package: pip install 'vramwise[mcp]'"


_PORT = click.option(
    "--port", type=click.IntRange(1, 65535), default=PORT, show_default=True, help="With --http: port to listen on."
)
_TOKEN = click.option(
    "--token",
    metavar="TEXT",
    envvar=TOKEN_VARIABLE,
    show_envvar=True,
    help="With --http: the token that requests must send.",
)


@click.group("mcp", invoke_without_command=True)
@click.option("--http", is_flag=True, help="Serve streamable HTTP on 127.0.0.1 instead of stdin and stdout.")
@_PORT
@_TOKEN
@click.option(
    "--no-token", is_flag=True, help="With --http: require no token; any user of this machine can call the server."
)
@click.option(
    "--time-limit",
    type=click.IntRange(1, 86400),
    metavar="SECONDS",
    default=TIME_LIMIT,
    show_default=True,
    help="Time limit for one call.",
)
@click.option(
    "--online/--offline",
    default=False,
    show_default=True,
    help="Let predict_memory fetch the config.json of unknown models from the hub.",
)
@click.pass_context
def command(
    ctx: click.Context, http: bool, port: int, token: str | None, no_token: bool, time_limit: int, online: bool
) -> None:
    """Run the MCP (Model Context Protocol) server, for AI agents.

    Without a subcommand, the server runs until its input is closed. Tools take the text of a config; no file is read
    or written. With --http, requests need a token: the value of --token, or a random one printed at startup.
    """
    if ctx.invoked_subcommand is not None:
        return
    if no_token and ctx.get_parameter_source("token") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--token and --no-token cannot be combined")
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
    """Return where the server listens and whether a token is needed.

    A token that the user chose is not repeated, because it may be secret.
    """
    if token is None:
        return [f"serving on {address}", "warning: without a token, any user of this machine can call this server"]
    if not random:
        return [f"serving on {address} (requests need the given token)"]
    return [
        f"serving on {address}?token={token}",
        f"send the token as ?token=… or in the header 'Authorization: Bearer …'; set {TOKEN_VARIABLE} to keep the "
        "same token",
    ]


@command.command("add")
@click.argument("client", type=click.Choice(list(CLIENTS)))
@click.option("--user", is_flag=True, help="Write to your user settings instead of this folder.")
@click.option("--http", is_flag=True, help="Connect to a running server (`vramwise mcp --http`).")
@_PORT
def add_command(client: str, user: bool, http: bool, port: int) -> None:
    """Add the server to CLIENT's settings in this folder, keeping what is there.

    With --http, the entry takes the token from the environment variable VRAMWISE_MCP_TOKEN.
    """
    done = add(CLIENTS[client], Path.home() if user else Path.cwd(), user=user, port=port if http else None)
    say(f"wrote {done.path}" if done.written else f"{done.path} already has it")
    say_note(done.note)
    if http:
        say_note(f"set {TOKEN_VARIABLE} to the same token for {client} and `vramwise mcp --http`")
    if not _has_sdk():
        say_note(_EXTRA)


@command.command("doctor")
@click.option("--http", is_flag=True, help="Test a running server (`vramwise mcp --http`).")
@_PORT
@_TOKEN
def doctor_command(http: bool, port: int, token: str | None) -> None:
    """Test the server: start it as a client would, list its tools and call one."""
    _need_sdk()
    from vramwise.mcp.doctor import examine  # late: it needs the SDK, which is an extra

    say_all(examine(server_url(port), token).lines() if http else examine().lines())


def _has_sdk() -> bool:
    from importlib.util import find_spec

    return find_spec("mcp") is not None


def _need_sdk() -> None:
    if not _has_sdk():
        raise VramwiseError(_EXTRA)
