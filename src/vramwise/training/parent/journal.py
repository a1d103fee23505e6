"""The journal of a run: `vramwise.json` holds the plan of the current attempt and the decisions so far.

The worker reads the plan in it; the `log` beside it is for people and for `vramwise report`. Every decision also goes
into `memory.jsonl`, which is never rewritten, so restarting the run loses no history.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, parse_json, read_file
from vramwise.training.guard.memory_log import MemoryLog, log_path
from vramwise.training.plan import ESCAPED, PLAN_FILE, TrainPlan
from vramwise.whole_files import write_new


class Journal:
    """The journal of one output_dir."""

    def __init__(self, output_dir: str | Path) -> None:
        self.path = Path(output_dir) / PLAN_FILE
        self._log: list[Mapping[str, Any]] = _earlier_log(self.path)
        self._plan: TrainPlan | None = None

    def start(self, plan: TrainPlan) -> None:
        """Record the start of an attempt: its plan becomes the current one."""
        self._plan = plan
        self.note(
            "attempt",
            attempt=plan.attempt,
            resume_from=plan.resume_from,
            micro_batch_size=plan.micro_batch_size,
            gradient_accumulation_steps=plan.gradient_accumulation_steps,
            eval_batch_size=plan.eval_batch_size,
        )

    def note(self, what: str, **facts: Any) -> None:
        """Record one event: in the append-only log first, then beside the plan."""
        entry = {"what": what, **facts}
        self._log.append(entry)
        with suppress(OSError), MemoryLog(log_path(self.path.parent)) as log:  # the journal holds the decision too
            log.write("decision", entry)
        if self._plan is not None:
            self._write(self._plan)

    def _write(self, plan: TrainPlan) -> None:
        text = json.dumps({**json.loads(plan.to_json()), "log": self._log}, indent=2, ensure_ascii=False) + "\n"
        write_new(self.path, text.encode("utf-8", ESCAPED))


def _earlier_log(path: Path) -> list[Mapping[str, Any]]:
    """Return what an earlier start of this run recorded; empty if the file is missing or not ours."""
    try:
        loaded = parse_json(read_file(path, ceilings.RUN_FILE_BYTES, "a plan"))
    except (VramwiseError, ValueError):
        return []
    log = loaded.get("log") if isinstance(loaded, dict) else None
    return [entry for entry in log if isinstance(entry, dict) and _flat(entry)] if isinstance(log, list) else []


def _flat(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry can be ours: words, numbers, and lists of them. Others may be nested too deeply."""
    values = (item for value in entry.values() for item in (value if isinstance(value, list) else [value]))
    return not any(isinstance(item, dict | list) for item in values)
