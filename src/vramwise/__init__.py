"""vramwise keeps LLM fine-tuning inside GPU memory.

The commands are also functions: `vramwise.check(["config.yml"])`. They are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramwise.api import (
        as_json,
        check,
        diagnose,
        explain,
        fit,
        fix,
        new,
        predict,
        replay,
        rules,
        train,
        watch,
    )
    from vramwise.errors import ConfigError, VramwiseError
    from vramwise.opening.options import FitOptions, NewOptions, Options, PredictOptions
    from vramwise.training.parent.prepare import TrainOptions
    from vramwise.types import Finding, Severity
    from vramwise.verbs.check import FileReport
    from vramwise.verbs.fix import FixReport

__version__ = "0.5.0"

__all__ = [
    "ConfigError",
    "FileReport",
    "Finding",
    "FitOptions",
    "FixReport",
    "NewOptions",
    "Options",
    "PredictOptions",
    "Severity",
    "TrainOptions",
    "VramwiseError",
    "__version__",
    "as_json",
    "check",
    "diagnose",
    "explain",
    "fit",
    "fix",
    "new",
    "predict",
    "replay",
    "rules",
    "train",
    "watch",
]

_ELSEWHERE = {
    "ConfigError": "vramwise.errors",
    "FileReport": "vramwise.verbs.check",
    "Finding": "vramwise.types",
    **dict.fromkeys(("FitOptions", "NewOptions", "Options", "PredictOptions"), "vramwise.opening.options"),
    "FixReport": "vramwise.verbs.fix",
    "Severity": "vramwise.types",
    "TrainOptions": "vramwise.training.parent.prepare",
    "VramwiseError": "vramwise.errors",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'vramwise' has no attribute '{name}'")
    return getattr(import_module(_ELSEWHERE.get(name, "vramwise.api")), name)


def load_ipython_extension(ipython: Any) -> None:
    """Add `%vramwise` to a notebook: called by `%load_ext vramwise`."""
    from vramwise.notebook.magic import add_to  # late: only notebooks need it

    add_to(ipython)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
