"""The server: its tools and resources, and how they are registered."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp_types import ToolAnnotations

from vramwise import __version__
from vramwise.api import explain, rules
from vramwise.errors import VramwiseError
from vramwise.lookup.search import pages
from vramwise.mcp.tools import titled_tools
from vramwise.mcp.worker_process import Worker
from vramwise.render.knowledge import rule_page
from vramwise.render.outward import outward

INSTRUCTIONS = (
    "Keeps LLM fine-tuning inside GPU memory. Pass the text of the config and the card. check_config finds problems; "
    "fix_config returns the fixed text, the remaining findings and whether it fits; predict_memory predicts peak "
    "memory and tries changes; fit_config finds the fastest variant that fits; diagnose_failure explains the log of a "
    "failed run. No GPU is needed, and no file is written."
)
_MARKDOWN = "text/markdown"


def make_server(*, online: bool = False, worker: Worker) -> MCPServer[Any]:
    """Return the server with all tools, which `worker` runs.

    `online`: predict_memory may fetch a config.json from the hub.
    """
    server: MCPServer[Any] = MCPServer(
        "vramwise", title="vramwise", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    for tool, title in titled_tools(online=online).items():
        asks_hub = online and tool.__name__ == "predict_memory"
        annotations = _harmless(title, open_world=asks_hub)
        server.add_tool(_run_by(worker, tool, online=online), title=title, annotations=annotations)
    server.resource("vramwise://rules/{rule}", name="rule", title="A rule's page", mime_type=_MARKDOWN)(_rule_resource)
    server.resource("vramwise://pages/{page}", name="page", title="A page of the documentation", mime_type=_MARKDOWN)(
        _page_resource
    )
    server.resource("vramwise://rules", name="rules", title="All rules", mime_type=_MARKDOWN)(_rules_resource)
    return server


def _run_by(worker: Worker, tool: Callable[..., Any], *, online: bool) -> Callable[..., Any]:
    """Return the tool as the SDK sees it, with its name, arguments and result; the worker runs it."""

    @wraps(tool)
    async def run(**arguments: Any) -> Any:
        return await worker.call(tool.__name__, arguments, online=online)

    return run


def _harmless(title: str, *, open_world: bool) -> ToolAnnotations:
    """Return annotations for a read-only tool: unspecified hints count as dangerous."""
    return ToolAnnotations(
        title=title, read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=open_world
    )


def _rule_resource(rule: str) -> str:
    """The page of one rule: why it hurts, a bad and a good example."""
    try:
        return rule_page(explain(rule))
    except VramwiseError as error:
        raise ResourceNotFoundError(str(error)) from error


def _page_resource(page: str) -> str:
    """One page of the documentation: check, fix, predict, fit, diagnose, train, guard and others."""
    known = pages()
    if page not in known:
        raise ResourceNotFoundError(f"no such page '{page}': the pages are {', '.join(known)}")
    return known[page]


def _rules_resource() -> str:
    """Every rule with its severity and title, by topic."""
    lines = [f"- [{rule.id}](vramwise://rules/{rule.id}) ({rule.severity.value}): {rule.title}" for rule in rules()]
    return "# Rules\n\n" + "\n".join(lines) + "\n"


class VisibleFormatter(logging.Formatter):
    """Formats a record with every control character escaped: the message on one line, tracebacks line by line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the message on one line."""
        return outward(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Return the traceback with its line breaks."""
        return "\n".join(map(outward, super().formatException(ei).split("\n")))


def _log_visibly() -> None:
    """Send the log of every library to standard error; content of requests cannot control the terminal."""
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleFormatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


def serve_stdio(*, online: bool = False, seconds: int) -> None:
    """Serve standard input and output until closed. `seconds`: the time limit of a call.

    Raises VramwiseError if standard input cannot be read.
    """
    _log_visibly()
    try:
        make_server(online=online, worker=Worker(seconds)).run("stdio")
    except BaseExceptionGroup as group:
        unread, other = group.split(OSError)
        if other is not None:
            raise
        raise VramwiseError(f"cannot read stdin: {unread}; this command is meant to be started by an agent") from group
