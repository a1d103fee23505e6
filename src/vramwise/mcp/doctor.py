"""`vramwise mcp doctor`: start the server as a client would, list its tools, and call one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

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
    tools: tuple[str, ...]
    answer: str

    def lines(self) -> Iterator[str]:
        """As one reads it."""
        yield f"{self.server} {self.version} answers over standard input and output"
        yield f"{len(self.tools)} tools: {', '.join(self.tools)}"
        yield f"check_config: {self.answer}"


def examine() -> Checkup:
    """Start the server by the command that `add` writes, and ask it; a VramwiseError says what failed."""
    try:
        found: Checkup = anyio.run(_ask)
        return found
    except VramwiseError:
        raise
    except BaseExceptionGroup as error:
        raise VramwiseError(f"the server does not answer: {_first(error)}") from error
    except Exception as error:
        raise VramwiseError(f"the server does not answer: {error or type(error).__name__}") from error


async def _ask() -> Checkup:
    command, *arguments = server_command()
    with anyio.fail_after(_SECONDS):
        # With all variables, as clients start servers; the SDK's own default passes few of them on.
        started = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
        async with Client(stdio_client(started)) as client:
            tools = tuple(tool.name for tool in (await client.list_tools()).tools)
            result = await client.call_tool("check_config", {"config": _CONFIG, "gpu": "rtx-4090"})
            if result.is_error or result.structured_content is None:
                raise VramwiseError("the server answers, but check_config fails: run `vramwise check` on a config")
            info = client.server_info
            answer = str(result.structured_content["summary"])
            return Checkup(server=info.name, version=info.version, tools=tools, answer=answer)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
