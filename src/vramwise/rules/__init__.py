"""The rules that hold for every trainer, one a file in a folder a topic: a new rule is one file.

They read RunSpec and MemoryReport alone; a trainer's own rules are in its folder. `vramwise.rules` is this room and,
called, the verb: `vramwise.rules()` gives all rules, the trainers' own among them.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramwise.rules.base import Rule


class _RulesVerb(ModuleType):
    """A package that can be called, because its name is also the name of a verb."""

    def __call__(self) -> tuple[Rule, ...]:
        """All rules."""
        from vramwise.api import rules  # late: the API asks the trainers, which import this room

        return rules()


sys.modules[__name__].__class__ = _RulesVerb
