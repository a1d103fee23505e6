"""The server over HTTP: on loopback only, protected by a token, with calls that a client can cancel."""

from __future__ import annotations

import hmac
import re
import secrets
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vramwise.errors import VramwiseError
from vramwise.mcp.defaults import HOST, TOKEN_VARIABLE, server_url
from vramwise.mcp.log import log_visibly
from vramwise.mcp.server import make_server
from vramwise.mcp.worker_process import Worker

# Seconds for calls to end when the server is stopped: an unfinished request must not block it.
_LAST_WORDS = 2
LOOPBACK = (HOST, "localhost", "[::1]")
_SESSION = "mcp-session-id"
_VERSION = "mcp-protocol-version"
_REFUSED = (
    "This server requires a token: send the header 'Authorization: Bearer TOKEN', or add ?token=TOKEN to the URL. "
    f"The server printed it when it started, or took it from --token or {TOKEN_VARIABLE}.\n"
)
# Valid characters of a token in a header (RFC 6750), without + and =, which have another meaning in a URL.
_TOKEN = re.compile(r"[A-Za-z0-9._~/-]+")


def usable_token(given: str | None) -> str:
    """Return the given token, or a new random one. Raises VramwiseError if it cannot be sent in a header and a URL."""
    if given is None:
        return secrets.token_urlsafe(32)
    if not _TOKEN.fullmatch(given):
        said = "is empty" if not given else "has a character that is not allowed in a URL or header"
        raise VramwiseError(f"the token {said}: use letters, digits and - . _ ~ /, or --no-token")
    return given


class Gate:
    """Lets requests with the token pass, and gives each client an id for its later requests.

    The id is the protocol's session id. It has no state: it only identifies whose call a client cancels.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401 without the token; otherwise let the server answer."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif self._allows(scope):
            await self._app(scope, receive, _naming(scope, send))
        else:
            refusal = PlainTextResponse(_REFUSED, 401, {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)

    def _allows(self, scope: Scope) -> bool:
        if self._token is None:
            return True
        kind, _, sent = Headers(scope=scope).get("authorization", "").partition(" ")
        given = [sent.strip()] if kind.lower() == "bearer" else []
        given += parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        return any(hmac.compare_digest(one.encode(), self._token.encode()) for one in given)


def _naming(scope: Scope, send: Send) -> Send:
    """Return `send` with a session id added to the answer to a client's first request."""
    headers = Headers(scope=scope)
    if _SESSION in headers or _VERSION in headers:
        return send

    async def named(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            MutableHeaders(scope=message)[_SESSION] = secrets.token_urlsafe(16)
        await send(message)

    return named


class CancelByNotification:
    """Ends a call that its client cancels with `notifications/cancelled`, which is a separate request.

    Clients of protocol 2026-07-28 close the connection instead, which the SDK handles.
    """

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], anyio.CancelScope] = {}

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Run a call in a cancellable scope; cancel the one that a notification names."""
        client = ctx.request.headers.get(_SESSION) if ctx.request is not None else None
        if client is not None and ctx.method == "notifications/cancelled":
            cancelled = self._running.get((client, str((ctx.params or {}).get("requestId"))))
            if cancelled is not None:
                cancelled.cancel()
        if client is None or ctx.method != "tools/call":
            return await call_next(ctx)
        key = (client, str(ctx.request_id))
        with anyio.CancelScope() as scope:
            self._running[key] = scope
            try:
                return await call_next(ctx)
            finally:
                self._running.pop(key, None)
        raise MCPError(code=REQUEST_CANCELLED, message="Request cancelled")


def security(port: int) -> TransportSecuritySettings:
    """Accept only requests to this machine's own names, and from our own pages, not from other sites."""
    hosts = [f"{name}:{port}" for name in LOOPBACK]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True, allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
    )


def serve_http(
    port: int, *, token: str | None, seconds: int, online: bool = False, ready: Callable[[str], None]
) -> None:
    """Serve streamable HTTP on loopback until stopped; `ready` is called with the address.

    `token`: required in requests, None for no token. `seconds`: the time limit of a call. Raises VramwiseError if the
    port cannot be used.
    """
    import uvicorn

    _refuse_taken(port)
    ready(server_url(port))
    log_visibly()
    server = make_server(online=online, worker=Worker(seconds))
    server.middleware.append(CancelByNotification())
    app = server.streamable_http_app(host=HOST, stateless_http=True, transport_security=security(port))
    config = uvicorn.Config(
        Gate(app, token),
        host=HOST,
        port=port,
        log_config=None,  # it uses our log
        log_level="warning",
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=_LAST_WORDS,
    )
    uvicorn.Server(config).run()


def _refuse_taken(port: int) -> None:
    """Raise VramwiseError if the port is taken, before the server starts."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HOST, port))
        except OSError as error:
            reason = error.strerror or error
            raise VramwiseError(f"cannot use port {port}: {reason}; choose another with --port") from error
