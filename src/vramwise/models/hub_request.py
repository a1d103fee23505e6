"""One request to the hub: its address, its headers, and what the answer means. Imported only when needed."""

from __future__ import annotations

import os
from http.client import HTTPMessage
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from vramwise.models.hub import LARGEST_BYTES, SECONDS, HubSilent, endpoint
from vramwise.units import mib


class _Redirects(HTTPRedirectHandler):
    """Follow redirects over http(s) only; the token is not sent to another host."""

    max_redirections = 5

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """Return the next request. Raises HubSilent for a scheme that is not allowed."""
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if after.scheme not in ("http", "https") or (before.scheme == "https" and after.scheme == "http"):
            raise HubSilent(f"was redirected to {after.scheme}:, which is not allowed")
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and (before.scheme, before.netloc) != (after.scheme, after.netloc):
            following.remove_header("Authorization")
        return following


def ask(name: str, revision: str) -> bytes:
    """Return the body of the answer. Raises HubSilent if there is none."""
    hub = endpoint()
    if urlsplit(hub).scheme not in ("http", "https"):
        raise HubSilent(f"cannot be fetched: HF_ENDPOINT is '{hub}', which is not a hub address")
    address = f"{hub}/{quote(name)}/resolve/{quote(revision, safe='')}/config.json"
    headers = {"User-Agent": "vramwise", "Accept": "application/json"}
    token = os.environ.get("HF_TOKEN", "").strip()
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        opener = build_opener(_Redirects, ProxyHandler())
        with opener.open(Request(address, headers=headers), timeout=SECONDS) as answer:
            data: bytes = answer.read(LARGEST_BYTES + 1)
    except HTTPError as error:
        error.close()  # it holds the connection
        raise HubSilent(_refusal(error.code, bool(token))) from error
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise HubSilent(f"could not be fetched from {hub}: {str(reason).strip() or type(error).__name__}") from error
    if len(data) > LARGEST_BYTES:
        raise HubSilent(f"has a config.json above {mib(LARGEST_BYTES)} there, which is not read")
    return data


def _refusal(code: int, token: bool) -> str:
    if code in (401, 403):
        how = "the token in HF_TOKEN may not read it" if token else "set HF_TOKEN to a token that may read it"
        return f"is private, gated or missing ({code}): {how}"
    if code == 404:
        return "does not exist, or has no config.json (404)"
    return f"could not be fetched: the hub answered {code}"
