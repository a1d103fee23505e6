"""Sessions of the SDK's own client with our server: in memory, over standard streams, over HTTP."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from installed import PATIENCE, Later

anyio = Later("anyio")
client = Later("mcp.client")
stdio = Later("mcp.client.stdio")
ROOT = Path(__file__).parents[2]
SOURCE = str(ROOT / "src")


def make_server(**options):
    from vramwise.mcp import server

    return server.make_server(**options)


def ask(tool, arguments=None, **server):
    """One call in memory: the result."""
    return talk(make_server(**server), lambda client: client.call_tool(tool, arguments or {}))


def talk(server, conversation):
    """A conversation with a server, a transport or a URL."""

    async def session():
        async with client.Client(server) as connected:
            return await conversation(connected)

    return anyio.run(session)


def environment():
    return {**os.environ, "PYTHONPATH": SOURCE, "HF_HUB_OFFLINE": "1"}


def over_stdio(conversation, *words):
    started = stdio.StdioServerParameters(
        command=sys.executable, args=["-m", "vramwise", "mcp", *words], env=environment(), cwd=str(ROOT)
    )
    return talk(stdio.stdio_client(started), conversation)


@contextlib.contextmanager
def http_server():
    """A server of its own on a free port; gives the port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vramwise", "mcp", "--http", "--port", str(port)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)


def _wait(port, process):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None, "the server ended"
        time.sleep(0.05)
    raise AssertionError("the server does not listen")
