"""The tools and their titles. The server describes them to agents; the worker process runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramwise.mcp import knowledge
from vramwise.mcp.fitting import fit_config
from vramwise.mcp.starting import new_config
from vramwise.mcp.verbs import Verbs


def titled_tools(*, online: bool = False) -> dict[Callable[..., Any], str]:
    """Return every tool with its title. `online`: predict_memory may fetch a model's config.json from the hub."""
    verbs = Verbs(online=online)
    return {
        new_config: "Write a new config that fits a card",
        verbs.check_config: "Check a training config for GPU memory",
        verbs.fix_config: "Fix a training config",
        verbs.predict_memory: "Predict a run's GPU memory",
        fit_config: "Fit a config to a card",
        verbs.diagnose_failure: "Explain a failed run from its log",
        knowledge.explain_rule: "Explain a rule",
        knowledge.search_practice: "Search rules, keys and documentation",
        knowledge.lookup_key: "Look up a config key",
        knowledge.list_gpus: "List known cards",
        knowledge.list_models: "List known models",
    }
