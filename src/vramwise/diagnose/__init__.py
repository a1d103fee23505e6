"""Explain an out-of-memory or dtype failure from what it left behind: a log, its config, a memory snapshot.

`log` reads text into facts, `snapshot` a recording; `causes` ranks what may have happened, `advice` what to change.
`vramwise.diagnose` is this room and, called, the verb: `vramwise.diagnose("train.log", config="config.yml")`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path

    from vramwise.diagnose.evidence import Diagnosis
    from vramwise.resolving import Options


class _DiagnoseVerb(ModuleType):
    """A package that can be called, because its name is also the name of a verb."""

    def __call__(
        self,
        log: str | Path | BinaryIO | None = None,
        *,
        config: str | Path | None = None,
        snapshot: str | Path | None = None,
        options: Options | None = None,
        model: str | None = None,
    ) -> Diagnosis:
        """The diagnosis of a log (a path, or a binary stream), with its config and its memory snapshot if given."""
        from vramwise.api import diagnose

        return diagnose(log, config=config, snapshot=snapshot, options=options, model=model)


sys.modules[__name__].__class__ = _DiagnoseVerb
