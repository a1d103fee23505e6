"""One function per verb: what other programs call. Each is imported on first use.

No module here has a function's name: `vramwise.api.check` is the function.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramwise.api.configs import check, fix
    from vramwise.api.failures import diagnose, replay
    from vramwise.api.predictions import fit, predict, snapshot_bytes
    from vramwise.api.rulebook import explain, rules
    from vramwise.api.runs import train
    from vramwise.api.starting import new
    from vramwise.options import FitOptions, NewOptions, Options, PredictOptions
    from vramwise.training.parent.prepare import TrainOptions

__all__ = [
    "FitOptions",
    "NewOptions",
    "Options",
    "PredictOptions",
    "TrainOptions",
    "check",
    "diagnose",
    "explain",
    "fit",
    "fix",
    "new",
    "predict",
    "replay",
    "rules",
    "snapshot_bytes",
    "train",
]

_MODULES = {
    **dict.fromkeys(("check", "fix"), "vramwise.api.configs"),
    **dict.fromkeys(("diagnose", "replay"), "vramwise.api.failures"),
    **dict.fromkeys(("fit", "predict", "snapshot_bytes"), "vramwise.api.predictions"),
    **dict.fromkeys(("explain", "rules"), "vramwise.api.rulebook"),
    "new": "vramwise.api.starting",
    "train": "vramwise.api.runs",
    "TrainOptions": "vramwise.training.parent.prepare",
    **dict.fromkeys(("FitOptions", "NewOptions", "Options", "PredictOptions"), "vramwise.options"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vramwise.api' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)
