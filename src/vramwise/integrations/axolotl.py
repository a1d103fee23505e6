"""For Axolotl: the memory guard as a plugin.

    plugins:
      - vramwise.integrations.axolotl.MemoryGuardPlugin

Axolotl's plugin interface as of 0.19 (`axolotl.integrations.base.BasePlugin`). Changes nothing about the training;
writes `memory.jsonl` into the config's output_dir and warns through Python's logging. When `vramwise train --engine
axolotl` started the run, VRAMWISE_PLAN names the plan, and the guard compares with its prediction.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from axolotl.integrations.base import BasePlugin

if TYPE_CHECKING:
    from vramwise.training.guard.callback import MemoryGuard

PLAN_VARIABLE = "VRAMWISE_PLAN"
# Axolotl's collators round padded rows up to a multiple of this.
_PAD_MULTIPLE = 64


class MemoryGuardPlugin(BasePlugin):
    """Adds a `MemoryGuard` to Axolotl's trainer."""

    def add_callbacks_post_trainer(self, cfg: Any, trainer: Any) -> list[MemoryGuard]:
        """The guard; Axolotl adds it to the trainer."""
        from vramwise.training.guard.callback import MemoryGuard
        from vramwise.training.plan import read_plan

        path = os.environ.get(PLAN_VARIABLE)
        plan = None if not path else read_plan(path)
        return [
            MemoryGuard(
                output_dir=_value(cfg, "output_dir"),
                predicted=None if plan is None else plan.predicted,
                thresholds=None if plan is None else plan.guard,
                attempt=1 if plan is None else plan.attempt,
                max_width=declared_width(cfg),
            )
        ]


def declared_width(cfg: Any) -> int | None:
    """The widest row the config allows: a packed batch can be one row of all its micro-batch."""
    length = _value(cfg, "sequence_len")
    if not length:
        return None
    rows = (_value(cfg, "micro_batch_size") or 1) if _value(cfg, "sample_packing") else 1
    width = int(length) * int(rows)
    return -(-width // _PAD_MULTIPLE) * _PAD_MULTIPLE


def _value(cfg: Any, key: str) -> Any:
    return cfg.get(key) if hasattr(cfg, "get") else getattr(cfg, key, None)
