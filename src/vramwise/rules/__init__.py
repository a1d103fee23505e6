"""The rules for every trainer, one module a topic: a new rule is one function or one row.

They read only RunSpec and MemoryReport; a trainer's own rules are in its folder. `vramwise.rules` is this package and,
called, the verb: `vramwise.rules()` returns all rules, including the trainers' own.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramwise.rules.base import Rule


class _RulesVerb(ModuleType):
    """A callable package, because its name is also the name of a verb."""

    def __call__(self) -> tuple[Rule, ...]:
        """Return all rules."""
        from vramwise.api import rules  # late: the API imports the trainers, which import this package

        return rules()


sys.modules[__name__].__class__ = _RulesVerb
