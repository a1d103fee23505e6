"""`vramwise mcp doctor`: query the server like a client: list its tools, and call one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from vramwise.errors import VramwiseError
from vramwise.mcp.clients import server_command

_SECONDS = 60.0
_CONFIG = "base_model: HuggingFaceTB/SmolLM2-135M\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """What a client saw."""

    server: str
    version: str
    transport: str
    tools: tuple[str, ...]
    answer: str

    def lines(self) -> Iterator[str]:
        """Yield the report in lines."""
        yield f"{self.server} {self.version} answers over {self.transport}"
        yield f"{len(self.tools)} tools: {', '.join(self.tools)}"
        yield f"check_config: {self.answer}"


def examine(url: str | None = None, token: str | None = None) -> Checkup:
    """Start the server with the command that `add` writes and query it; with `url`, query the one running there.

    Raises VramwiseError if it does not answer, or check_config fails.
    """
    try:
        found: Checkup = anyio.run(_ask, url, token)
        return found
    except VramwiseError:
        raise
    except Exception as error:
        why = _first(error)
        asked = f"; is `vramwise mcp --http` running on {url}, with this token?" if url else ""
        raise VramwiseError(f"the server does not answer: {str(why) or type(why).__name__}{asked}") from error


async def _ask(url: str | None, token: str | None) -> Checkup:
    with anyio.fail_after(_SECONDS):
        async with Client(_started() if url is None else f"{url}?{urlencode({'token': token or ''})}") as client:
            tools = tuple(tool.name for tool in (await client.list_tools()).tools)
            result = await client.call_tool("check_config", {"config": _CONFIG, "gpu": "rtx-4090"})
            if result.is_error or result.structured_content is None:
                raise VramwiseError("the server answers, but check_config fails: try `vramwise check` on a config")
            info = client.server_info
            answer = str(result.structured_content["summary"])
            transport = "standard input and output" if url is None else f"HTTP on {url}"
            return Checkup(server=info.name, version=info.version, transport=transport, tools=tools, answer=answer)


def _started() -> Any:
    command, *arguments = server_command()
    # With all environment variables, as clients do; the SDK's default passes on only a few.
    return stdio_client(StdioServerParameters(command=command, args=arguments, env=dict(os.environ)))


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
