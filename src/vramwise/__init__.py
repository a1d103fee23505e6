"""vramwise keeps LLM fine-tuning inside GPU memory.

The verbs are functions here as on the command line: `vramwise.check(["config.yml"])`. They are imported on first use.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "check": "vramwise.api",
    "fix": "vramwise.api",
    "explain": "vramwise.api",
    "predict": "vramwise.api",
    "PredictOptions": "vramwise.api",
    "Options": "vramwise.api",
    "FileReport": "vramwise.checking",
    "FixReport": "vramwise.checking",
    "Finding": "vramwise.types",
    "Severity": "vramwise.types",
    "VramwiseError": "vramwise.errors",
    "ConfigError": "vramwise.errors",
}

# Rooms that are verbs as well: the package itself can be called.
_VERBS = ("diagnose", "rules")

__all__ = [*_EXPORTS, "__version__", *_VERBS]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _VERBS:
        return import_module(f"vramwise.{name}")
    if name not in _EXPORTS:
        raise AttributeError(f"module 'vramwise' has no attribute '{name}'")
    return getattr(import_module(_EXPORTS[name]), name)
