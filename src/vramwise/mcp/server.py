"""The server: which tools and resources there are, and how they are offered."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ToolAnnotations

from vramwise import __version__
from vramwise.api import explain, rules
from vramwise.errors import VramwiseError
from vramwise.mcp import knowledge
from vramwise.mcp.arguments import tool_errors
from vramwise.mcp.fitting import fit_config
from vramwise.mcp.verbs import Verbs
from vramwise.practice.entries import pages
from vramwise.render.rule_text import rule_page

INSTRUCTIONS = (
    "Keeps LLM fine-tuning inside GPU memory. Pass the config's text and the card: check_config judges, fix_config "
    "gives the mended text with what remains and whether it fits, predict_memory tells the peak and tries changes, "
    "fit_config searches the fastest variant that fits, "
    "diagnose_failure reads a failed run's log. Answers are computed here without a GPU; nothing is written."
)
_MARKDOWN = "text/markdown"
HOST = "127.0.0.1"
# Seconds that calls have to end when the server is stopped: a client that never finishes its request must not hold it.
_LAST_WORDS = 2
LOOPBACK = (HOST, "localhost", "[::1]")


def make_server(*, online: bool = False) -> MCPServer[Any]:
    """The server with all tools. `online`: predict_memory may ask the hub for a model's config.json."""
    server: MCPServer[Any] = MCPServer(
        "vramwise", title="vramwise", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    verbs = Verbs(online=online)
    titles: dict[Callable[..., Any], str] = {
        verbs.check_config: "Check a training config for GPU memory",
        verbs.fix_config: "Mend a training config",
        verbs.predict_memory: "Predict a run's GPU memory",
        fit_config: "Fit a config to a card",
        verbs.diagnose_failure: "Explain a failed run from its log",
        knowledge.explain_rule: "Explain a rule",
        knowledge.search_practice: "Search rules, keys and documentation",
        knowledge.lookup_key: "Look up a config key",
        knowledge.list_gpus: "List known cards",
        knowledge.list_models: "List known models",
    }
    for tool, title in titles.items():
        asks_hub = online and tool == verbs.predict_memory
        server.add_tool(tool_errors(tool), title=title, annotations=_harmless(title, open_world=asks_hub))
    server.resource("vramwise://rules/{rule}", name="rule", title="A rule's page", mime_type=_MARKDOWN)(_rule_resource)
    server.resource("vramwise://pages/{page}", name="page", title="A page of the documentation", mime_type=_MARKDOWN)(
        _page_resource
    )
    server.resource("vramwise://rules", name="rules", title="All rules", mime_type=_MARKDOWN)(_rules_resource)
    return server


def _harmless(title: str, *, open_world: bool) -> ToolAnnotations:
    """All tools only read: what is not said counts as dangerous."""
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
        raise ResourceNotFoundError(f"there is no page '{page}': the pages are {', '.join(known)}")
    return known[page]


def _rules_resource() -> str:
    """Every rule with its severity and title, by topic."""
    lines = [f"- [{rule.id}](vramwise://rules/{rule.id}) ({rule.severity.value}): {rule.title}" for rule in rules()]
    return "# Rules\n\n" + "\n".join(lines) + "\n"


def security(port: int) -> TransportSecuritySettings:
    """Only requests to this machine's own names, and of web pages only our own: another site's page must not ask."""
    hosts = [f"{name}:{port}" for name in LOOPBACK]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True, allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
    )


def serve_http(port: int, *, online: bool = False, ready: Callable[[str], None]) -> None:
    """Serve streamable HTTP on loopback until stopped; `ready` is told the address."""
    import uvicorn

    _refuse_taken(port)
    ready(f"http://{HOST}:{port}/mcp")
    app = make_server(online=online).streamable_http_app(
        host=HOST, stateless_http=True, transport_security=security(port)
    )
    config = uvicorn.Config(app, host=HOST, port=port, log_level="warning", timeout_graceful_shutdown=_LAST_WORDS)
    uvicorn.Server(config).run()


def _refuse_taken(port: int) -> None:
    """A port that another program has is said in a sentence, before the server starts."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HOST, port))
        except OSError as error:
            reason = error.strerror or error
            raise VramwiseError(f"port {port} cannot be used: {reason}; name another with --port") from error


def serve_stdio(*, online: bool = False) -> None:
    """Serve standard input and output until it is closed."""
    try:
        make_server(online=online).run("stdio")
    except BaseExceptionGroup as group:
        unread, other = group.split(OSError)
        if other is not None:
            raise
        raise VramwiseError(f"standard input cannot be read: {unread}; an agent starts this command") from group
