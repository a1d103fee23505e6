"""Training: run a config with the rules applied, guarded, and recovering.

`vramwise.train` is this room and, called, the verb: `vramwise.train("config.yml")` trains and gives the exit code. The
parent side imports no torch; torch lives in the worker process (worker.py) and in what only it imports.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from vramwise.train.prepare import TrainOptions


class _TrainVerb(ModuleType):
    """A package that can be called, because its name is also the name of a verb."""

    def __call__(self, path: str | Path, options: TrainOptions | None = None) -> int:
        """Check, predict, prepare and train one config; 0 where it trained to the end."""
        from vramwise.api import train

        return train(path, options)


sys.modules[__name__].__class__ = _TrainVerb
