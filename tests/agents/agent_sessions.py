"""Sessions of the SDK's own client with our server: in memory, over standard streams, over HTTP."""

import contextlib
import dataclasses
import functools
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from installed import PATIENCE, Later

anyio = Later("anyio")
client = Later("mcp.client")
stdio = Later("mcp.client.stdio")
ROOT = Path(__file__).parents[2]
SOURCE = str(ROOT / "src")
VRAMWISE = ("-m", "vramwise")
TOKEN = "the-token-of-these-tests"


def make_server(**options):
    from vramwise.mcp import server

    return server.make_server(**options)


def ask(tool, arguments=None, **server):
    """One call in memory: the result."""
    made = make_server(worker=shared_worker(), **server)
    return talk(made, lambda client: client.call_tool(tool, arguments or {}))


@functools.cache
def shared_worker():
    """One worker process for all sessions in memory: it takes a second to start."""
    from vramwise.mcp.worker_process import Worker

    return Worker()


def talk(server, conversation):
    """A conversation with a server, a transport or a URL."""

    async def session():
        async with client.Client(server) as connected:
            return await conversation(connected)

    return anyio.run(session)


def environment():
    return {**os.environ, "PYTHONPATH": SOURCE, "HF_HUB_OFFLINE": "1"}


def over_stdio(conversation, *words, start=VRAMWISE, **variables):
    started = stdio.StdioServerParameters(
        command=sys.executable, args=[*start, "mcp", *words], env={**environment(), **variables}, cwd=str(ROOT)
    )
    return talk(stdio.stdio_client(started), conversation)


@contextlib.contextmanager
def http_server(*words, start=VRAMWISE, **variables):
    """A server of its own on a free port, with the token TOKEN unless words say otherwise; gives a Running."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, *start, "mcp", "--http", "--port", str(port), *words]
    env = {**environment(), "VRAMWISE_MCP_TOKEN": TOKEN, **variables}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=log)
        try:
            _wait(port, process)
            yield Running(port, process, log)
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)


@dataclasses.dataclass
class Running:
    """A server: its port, its process, and what it wrote to standard error."""

    port: int
    process: subprocess.Popen
    log: object

    def url(self, token=TOKEN):
        return f"http://127.0.0.1:{self.port}/mcp" + (f"?token={token}" if token else "")

    def said(self):
        self.log.seek(0)
        return self.log.read()


def _wait(port, process):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None, "the server ended"
        time.sleep(0.05)
    raise AssertionError("the server does not listen")
