"""For Axolotl: the memory guard as a plugin.

    plugins:
      - vramwise.integrations.axolotl.MemoryGuardPlugin

Axolotl's plugin interface as of 0.19 (`axolotl.integrations.base.BasePlugin`). Changes nothing about the training;
writes `memory.jsonl` into the config's output_dir and warns through Python's logging. When `vramwise train --engine
axolotl` started the run, VRAMWISE_PLAN names the plan: the guard compares with its prediction, keeps its memory limit,
and leaves a record of an out-of-memory, so that the run can be started again smaller.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from axolotl.integrations.base import BasePlugin

from vramwise.training.guard.oom import keep_limit, record_end
from vramwise.training.plan import TrainPlan, read_plan

if TYPE_CHECKING:
    from vramwise.training.guard.callback import MemoryGuard

PLAN_VARIABLE = "VRAMWISE_PLAN"
# Axolotl's collators round padded rows up to a multiple of this.
_PAD_MULTIPLE = 64


class MemoryGuardPlugin(BasePlugin):
    """Adds a `MemoryGuard` to Axolotl's trainer."""

    def __init__(self) -> None:
        super().__init__()
        self._plan = _plan()
        self._guard: MemoryGuard | None = None
        self._trainer: Any = None
        if self._plan is not None:
            keep_limit(self._plan)
            self._record_the_end(self._plan)

    def add_callbacks_post_trainer(self, cfg: Any, trainer: Any) -> list[MemoryGuard]:
        """Return the guard, which Axolotl adds to the trainer."""
        # Late: it needs transformers, which Axolotl has loaded by now.
        from vramwise.training.guard.callback import MemoryGuard

        plan, width = self._plan, declared_width(cfg)
        self._trainer = trainer
        if plan is None:
            self._guard = MemoryGuard(output_dir=_value(cfg, "output_dir"), max_width=width)
        else:
            self._guard = MemoryGuard(
                output_dir=plan.output_dir,
                predicted=plan.predicted,
                thresholds=plan.guard,
                attempt=plan.attempt,
                limit_bytes=plan.memory_limit_bytes,
                max_width=width,
            )
        return [self._guard]

    def _record_the_end(self, plan: TrainPlan) -> None:
        """Install an excepthook that records an out-of-memory before the error is shown."""
        before = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            record_end(plan, error, self._guard, self._trainer)
            before(kind, error, trace)

        sys.excepthook = hook


def _plan() -> TrainPlan | None:
    """Return the plan of this run, if `vramwise train` started it."""
    path = os.environ.get(PLAN_VARIABLE)
    return None if not path else read_plan(path)


def declared_width(cfg: Any) -> int | None:
    """Return the widest row the config allows; None if unknown.

    A packed batch can be one row with the whole micro-batch.
    """
    length = _value(cfg, "sequence_len")
    if not length:
        return None
    rows = (_value(cfg, "micro_batch_size") or 1) if _value(cfg, "sample_packing") else 1
    width = int(length) * int(rows)
    return -(-width // _PAD_MULTIPLE) * _PAD_MULTIPLE


def _value(cfg: Any, key: str) -> Any:
    return cfg.get(key) if hasattr(cfg, "get") else getattr(cfg, key, None)
