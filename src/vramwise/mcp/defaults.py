"""What the server, its command line and the clients' files agree on. Needs no SDK."""

from __future__ import annotations

HOST = "127.0.0.1"
PORT = 8765
TOKEN_VARIABLE = "VRAMWISE_MCP_TOKEN"
TIME_LIMIT = 60  # seconds for a call


def server_url(port: int) -> str:
    """Where the server answers over HTTP."""
    return f"http://{HOST}:{port}/mcp"
