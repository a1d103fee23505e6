"""Sessions of the SDK's own client with our server: in memory, and over standard streams."""

import functools
import os
import sys
from pathlib import Path

from installed import Later

anyio = Later("anyio")
client = Later("mcp.client")
stdio = Later("mcp.client.stdio")
ROOT = Path(__file__).parents[2]
SOURCE = str(ROOT / "src")
VRAMWISE = ("-m", "vramwise")


def make_server(**options):
    from vramwise.mcp import server

    return server.make_server(**{"worker": shared_worker(), **options})


def ask(tool, arguments=None, **server):
    """One call in memory: the result."""
    return talk(make_server(**server), lambda client: client.call_tool(tool, arguments or {}))


@functools.cache
def shared_worker():
    """One worker process for all sessions in memory: it takes a second to start."""
    from vramwise.mcp.worker_process import Worker

    return Worker(60)


def talk(server, conversation):
    """A conversation with a server or a transport."""

    async def session():
        async with client.Client(server) as connected:
            return await conversation(connected)

    return anyio.run(session)


def environment():
    return {**os.environ, "PYTHONPATH": SOURCE, "HF_HUB_OFFLINE": "1"}


def over_stdio(conversation, *words, start=VRAMWISE, errlog=sys.stderr, **variables):
    started = stdio.StdioServerParameters(
        command=sys.executable, args=[*start, "mcp", *words], env={**environment(), **variables}, cwd=str(ROOT)
    )
    return talk(stdio.stdio_client(started, errlog), conversation)
