"""Clients' own files: where each keeps its servers, and how our entry is added without changing the rest.

Needs no SDK. A file that cannot be parsed is left unchanged, and so is a different entry with our name.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramwise.budget import limits, read_file
from vramwise.errors import VramwiseError
from vramwise.files import write_atomic, write_new
from vramwise.mcp.defaults import TOKEN_VARIABLE, server_url

NAME = "vramwise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A program that starts servers: its project file, its user file, and the table that lists servers."""

    name: str
    project: str
    user: str
    table: str
    typed: bool = False  # entries name their transport
    variable: str = ""  # how a header refers to an environment variable; "": with a separate key


CLIENTS = {
    client.name: client
    for client in (
        Client(
            name="claude", project=".mcp.json", user=".claude.json", table="mcpServers", typed=True, variable="${%s}"
        ),
        Client(
            name="cursor",
            project=".cursor/mcp.json",
            user=".cursor/mcp.json",
            table="mcpServers",
            variable="${env:%s}",
        ),
        Client(name="codex", project=".codex/config.toml", user=".codex/config.toml", table="mcp_servers"),
        Client(name="vscode", project=".vscode/mcp.json", user="", table="servers", typed=True, variable="${env:%s}"),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """The outcome for an entry: written now, or already there."""

    path: Path
    written: bool
    note: str = ""


def server_command() -> list[str]:
    """Return the command that starts the server from anywhere: this Python, whatever the client's PATH is."""
    return [sys.executable, "-m", "vramwise", "mcp"]


def add(client: Client, folder: Path, *, user: bool = False, port: int | None = None) -> Added:
    """Write our entry into the client's file in a project folder, or with `user` in the user's home folder.

    `port`: the entry is for a server that runs there over HTTP; otherwise the client starts the server. Raises
    VramwiseError if the file cannot be changed safely.
    """
    if user and not client.user:
        raise VramwiseError(
            f"{client.name} stores user-level servers in its own settings: add the server to a project instead"
        )
    path = folder / (client.user if user else client.project)
    before = _read(path)
    entry = _started(client) if port is None else _over_http(client, port)
    after = (_in_toml if path.suffix == ".toml" else _in_json)(path, before, client.table, entry)
    if after is None:
        return Added(path=path, written=False)
    note = ""
    if path.exists():
        note = write_atomic(str(path), after.encode("utf-8"), expected=before.encode("utf-8"))
    else:
        write_new(path, after.encode("utf-8"), make_folder=True)
    return Added(path=path, written=True, note=note)


def _started(client: Client) -> dict[str, Any]:
    """Return the entry for a server that the client starts."""
    command, *arguments = server_command()
    return {**({"type": "stdio"} if client.typed else {}), "command": command, "args": arguments}


def _over_http(client: Client, port: int) -> dict[str, Any]:
    """Return the entry for a running server. It names the token's variable, as project files are shared."""
    entry = {**({"type": "http"} if client.typed else {}), "url": server_url(port)}
    if not client.variable:
        return {**entry, "bearer_token_env_var": TOKEN_VARIABLE}
    return {**entry, "headers": {"Authorization": f"Bearer {client.variable % TOKEN_VARIABLE}"}}


def _read(path: Path) -> str:
    """Return the file's text, "" if there is none."""
    try:
        if not path.exists():
            return ""
        return read_file(path, limits.RUN_FILE_BYTES, "a list of servers; nothing was changed").decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise VramwiseError(f"{path} cannot be read: {error}; nothing was changed") from error


def _in_json(path: Path, text: str, table: str, entry: Mapping[str, Any]) -> str | None:
    try:
        content = json.loads(text, object_pairs_hook=_once) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, "JSON", error, table, entry) from error
    servers = content.setdefault(table, {}) if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise VramwiseError(f"{path}: {table} should be an object with the servers' names as keys; nothing was changed")
    if NAME in servers:
        _refuse_another(path, servers[NAME], entry)
        return None
    servers[NAME] = dict(entry)
    return _with_its_breaks(json.dumps(content, indent=_indent(text), ensure_ascii=False) + "\n", text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object if its keys are unique; of duplicates, one would be lost on writing."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key in an object")
    return found


def _with_its_breaks(after: str, before: str) -> str:
    return after.replace("\n", "\r\n") if "\r\n" in before else after


def _in_toml(path: Path, text: str, table: str, entry: Mapping[str, Any]) -> str | None:
    """Return the text with our table at the end; everything else stays as written, including comments."""
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, "TOML", error, table, entry) from error
    servers = content.get(table, {})
    if not isinstance(servers, dict):
        raise VramwiseError(f"{path}: {table} should be a table with the servers' names as keys; nothing was changed")
    if NAME in servers:
        _refuse_another(path, servers[NAME], entry)
        return None
    lines = [f"[{table}.{NAME}]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())]
    gap = "\n" * (2 - text.endswith("\n")) if text else ""
    after = text + _with_its_breaks(gap + "\n".join(lines) + "\n", text)
    try:
        tomllib.loads(after)
    except ValueError as error:  # an inline table `mcp_servers = {…}` cannot be extended
        raise _unreadable(path, "extensible TOML", error, table, entry) from error
    return after


def _refuse_another(path: Path, found: Any, entry: Mapping[str, Any]) -> None:
    """Raise VramwiseError if the entry with our name is a different one, which is not ours to replace."""
    if not isinstance(found, dict) or any(found.get(key) != value for key, value in entry.items() if key != "type"):
        raise VramwiseError(
            f"{path} already has a different server named {NAME}; nothing was changed. Remove it and run again"
        )


def _unreadable(path: Path, kind: str, error: Exception, table: str, entry: Mapping[str, Any]) -> VramwiseError:
    return VramwiseError(
        f"{path} is not {kind} ({error}); nothing was changed. Fix it and run again, or add this by hand under "
        f"{table}:",
        f"  {json.dumps({NAME: dict(entry)})}",
    )


def _indent(text: str) -> str | int:
    """Return the file's existing indentation."""
    found = re.search(r'^([ \t]+)"', text, re.MULTILINE)
    return found[1] if found else 2
