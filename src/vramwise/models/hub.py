"""Fetch a model's config.json from the hub and cache it: standard library only, three seconds, never weights.

`HF_ENDPOINT` names another hub, `HF_TOKEN` gives access to private or gated models, `HF_HUB_OFFLINE` forbids requests.
The token goes only to that hub: a redirect to another host is followed without it. The answer must be a JSON object of
a sensible size; it is written atomically below the user's cache folder and fetched again after a week.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, parse_json
from vramwise.whole_files import put_whole

SECONDS = 3.0
LARGEST_BYTES = ceilings.MODEL_BYTES
_FRESH_SECONDS = 7 * 24 * 3600
# Valid characters in `owner/name`, and in the name of a branch, tag or commit.
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[\w.-]{1,96}", re.ASCII)
_REVISION = re.compile(r"[\w./-]{1,128}", re.ASCII)
_TRUE = {"1", "on", "yes", "true"}


class HubSilent(Exception):  # noqa: N818 (it reads as what happened)
    """The hub returned nothing usable; the text says why, as a clause."""


def is_hub_id(name: str) -> bool:
    """Return whether this could be a model's id on the hub: `owner/name`."""
    return HUB_ID.fullmatch(name) is not None and ".." not in name


def forbidden() -> str:
    """Return the environment variable that forbids requests; "" if none does."""
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(variable, "").strip().lower() in _TRUE:
            return variable
    return ""


def kept(name: str, revision: str | None = None) -> Path | None:
    """Return the cached config.json of this id, or None."""
    if not is_hub_id(name):
        return None
    path = _place(name, revision or "main")
    return path if path.is_file() else None


def fetched(name: str, revision: str | None = None) -> Path:
    """Return the config.json of this id, from the cache or fetched now. Raises HubSilent if there is none."""
    revision = revision or "main"
    if not is_hub_id(name) or not _REVISION.fullmatch(revision) or ".." in revision:
        raise HubSilent("is not a valid hub id")
    path = _place(name, revision)
    age = _age(path)
    if age is not None and age < _FRESH_SECONDS:
        return path
    try:
        if variable := forbidden():
            raise HubSilent(f"was not requested: {variable} is set")
        from vramwise.models.hub_request import ask  # only wanted when the hub is asked

        data = _within(SECONDS, lambda: ask(name, revision))
        _put(path, _checked(data))
    except HubSilent:
        if age is None:
            raise
    return path


def _age(path: Path) -> float | None:
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return None


def _place(name: str, revision: str) -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    host = quote(urlsplit(endpoint()).netloc, safe="")
    return home / "vramwise" / "hub" / host / name.replace("/", "--") / quote(revision, safe="") / "config.json"


def endpoint() -> str:
    """Return the address of the hub."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _checked(data: bytes) -> bytes:
    try:
        parsed = parse_json(data)
    except (ValueError, VramwiseError) as error:
        raise HubSilent("has a config.json there that is not valid JSON") from error
    if not isinstance(parsed, dict):
        raise HubSilent("has a config.json there that is not a JSON object")
    return data


def _within(seconds: float, ask: Callable[[], bytes]) -> bytes:
    """Return the answer, or raise HubSilent after the time limit.

    A name server or a slow response may block a socket longer than its timeout.
    """
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(ask())
        except Exception as error:  # passed to the waiting thread
            found.append(error)

    threading.Thread(target=work, daemon=True).start()
    end = time.monotonic() + seconds
    while not found and time.monotonic() < end:
        time.sleep(0.01)
    if not found:
        raise HubSilent(f"could not be fetched from {endpoint()}: no answer within {seconds:g} s")
    if isinstance(found[0], HubSilent):
        raise found[0]
    if isinstance(found[0], Exception):
        raise HubSilent(f"could not be fetched: {found[0]}") from found[0]
    data: bytes = found[0]
    return data


def _put(path: Path, data: bytes) -> None:
    """Write the file atomically."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put_whole(path, data)
    except OSError as error:
        raise HubSilent(f"cannot be saved: {path.parent}: {error.strerror or error}") from error
