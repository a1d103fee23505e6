"""Defaults shared by the server, its command line and the clients' files. Needs no SDK."""

from __future__ import annotations

HOST = "127.0.0.1"
PORT = 8765
TOKEN_VARIABLE = "VRAMWISE_MCP_TOKEN"
TIME_LIMIT = 60  # seconds for a call


def server_url(port: int) -> str:
    """Return the server's HTTP address."""
    return f"http://{HOST}:{port}/mcp"
