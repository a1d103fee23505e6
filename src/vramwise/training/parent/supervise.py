"""The supervisor: starts the worker, and restarts it after an out-of-memory so that it fits.

Runs in the parent process and never imports torch. `recover` decides what the next attempt does; `launch` and `child`
start processes. Every step is recorded in the journal: `vramwise.json` holds the plan of the current attempt, which the
worker reads, and a `log` of the decisions so far, for people and for `vramwise report`. Every decision also goes into
`memory.jsonl`, which is never rewritten, so restarting the run loses no history.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, parse_json, read_file
from vramwise.training.checkpoints import MARKER, checkpoints, is_complete, newest_whole
from vramwise.training.guard import oom
from vramwise.training.guard.memory_log import MemoryLog, log_path
from vramwise.training.parent import foreign
from vramwise.training.parent.child import PIDS, Signals
from vramwise.training.parent.folder_lock import locked
from vramwise.training.parent.launch import find_nodes, launched_from_outside, worker_command
from vramwise.training.parent.own_files import recorded
from vramwise.training.parent.recover import Recovery, next_attempt
from vramwise.training.plan import ESCAPED, EXIT_OUT_OF_MEMORY, PLAN_FILE, PredictedMemory, TrainPlan, write_plan
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


Command = Callable[[TrainPlan, str, Mapping[str, str]], list[str]]
# Whether the second plan would fit where the first one ran out of memory, given its record; None: unknown.
FitsAfter = Callable[[TrainPlan, TrainPlan, Mapping[str, Any]], bool | None]


def supervise(
    plan: TrainPlan,
    *,
    say: Callable[[str], None],
    advise: Callable[[TrainPlan], Sequence[str]] | None = None,
    predict: Callable[[TrainPlan], PredictedMemory | None] | None = None,
    fits: FitsAfter | None = None,
    command: Command = worker_command,
    env: Mapping[str, str] | None = None,
) -> int:
    """Train to the end, recovering from out-of-memories with smaller batches; return the exit code.

    `advise`: what else would help, asked when no batch can be made smaller. `predict`: the prediction for a restart
    with other batches; without it, the guard of a restart has none to compare with. `fits`: which batches a restart may
    have; without it, they are halved.
    """
    env = dict(os.environ if env is None else env) | dict(plan.environment)
    if launched_from_outside(env):  # one of several ranks started by an outer launcher: it cannot restart the others
        return _run_once(plan, command, env)
    if find_nodes(env).rank > 0:  # the first node keeps the journal and the lock; the others follow its decisions
        return _follow(plan, fits, command, env)
    with locked(plan.output_dir) as lock, recorded(plan.output_dir):
        return _Supervisor(plan, say, advise, predict, fits, command, env, () if lock is None else (lock,)).run()


@dataclass
class _Supervisor:
    _plan: TrainPlan
    _say: Callable[[str], None]
    _advise: Callable[[TrainPlan], Sequence[str]] | None
    _predict: Callable[[TrainPlan], PredictedMemory | None] | None
    _fits: FitsAfter | None
    _command: Command
    _env: Mapping[str, str]
    _keep_open: Sequence[int]
    _started_ns: int = 0
    _out_of_memory: bool = False

    def __post_init__(self) -> None:
        self._journal = Journal(self._plan.output_dir)
        self._signals = Signals(Path(self._plan.output_dir) / PIDS, self._say)

    def run(self) -> int:
        """Run attempt after attempt; return the exit code."""
        oom.forget_records(self._plan.output_dir, self._plan.attempt)
        with self._signals.forwarded():
            while True:
                self._journal.start(self._plan)
                # the file system's own clock, because checkpoints are compared with it
                self._started_ns = self._started_ns or self._journal.path.stat().st_mtime_ns
                words = self._command(self._plan, str(self._journal.path), self._env)
                code = _unhidden(self._signals.run(words, self._env, self._keep_open), self._plan, self._signals)
                recovery = self._after(code)
                if recovery is None:
                    return code if self._signals.received or not self._out_of_memory else EXIT_OUT_OF_MEMORY
                predicted = None if self._predict is None else self._predict(recovery.plan)
                self._plan = replace(recovery.plan, predicted=predicted)

    def _after(self, code: int) -> Recovery | None:
        """Return the next attempt after the end of one, or None if the run ends."""
        facts = out_of_memory_of(self._plan, code)
        self._out_of_memory = facts is not None
        if facts is not None and self._plan.engine == "script":
            self._plan = as_it_ran(self._plan, facts)
        if facts is None or self._signals.received is not None:
            self._note_end(code)
            self._say_end(code)
            return None
        for line in oom.describe(facts):
            self._say(line)
        recovery = (
            _recovery(self._plan, facts, last_of_this_run(self._plan, self._started_ns), self._fits)
            if self._plan.recover
            else None
        )
        kept = {key: facts.get(key) for key in ("phase", "step", "requested_bytes", "allocated_bytes", "snapshot")}
        self._journal.note(
            "out-of-memory",
            attempt=self._plan.attempt,
            exit_code=code,
            next=None if recovery is None else recovery.message,
            **kept,
        )
        if recovery is None:
            self._say_what_else(loading=facts["phase"] == "load")
        else:
            self._say(f"trying again: {recovery.message}")
        return recovery

    def _note_end(self, code: int) -> None:
        try:
            self._journal.note("end", attempt=self._plan.attempt, exit_code=code)
        except VramwiseError as error:  # for example a full disk: the run has ended anyway
            self._say(str(error))

    def _say_end(self, code: int) -> None:
        if code == 0:
            return
        checkpoint = last_of_this_run(self._plan, self._started_ns)
        if checkpoint is not None:
            self._say(f"ended with code {code}; {checkpoint} is complete: go on from it with --resume")
        else:
            self._say(f"ended with code {code}, before the first checkpoint")

    def _say_what_else(self, *, loading: bool) -> None:
        if not self._plan.recover:
            self._say("not trying again: recovery is off")
            return
        self._say(
            "the model alone does not fit: smaller batches cannot help"
            if loading
            else "no batch can be made smaller any more"
        )
        advice = [] if self._advise is None else list(self._advise(self._plan))
        self._journal.note("advice", attempt=self._plan.attempt, advice=advice)
        for line in advice:
            self._say(f"  {line}")


def _unhidden(code: int, plan: TrainPlan, signals: Signals) -> int:
    """Return the exit code after a signal: launchers return 1 for workers that saved and ended as requested."""
    launched = plan.gpus > 1 or plan.engine == "trl" or len(plan.command) > 1
    if code and launched and signals.received is not None:
        return 128 + signals.received
    return code


def out_of_memory_of(plan: TrainPlan, code: int) -> dict[str, Any] | None:
    """Return the record of this attempt's out-of-memory, or None.

    torchrun hides its workers' exit codes, so the record decides.
    """
    if code == 0:
        return None
    facts = oom.read_record(plan.output_dir, plan.attempt)
    if facts is None and code != EXIT_OUT_OF_MEMORY:
        return None
    known = {"phase": "train", "step": None, "micro_batch_size": plan.micro_batch_size}  # without a readable record
    written = facts or {}
    return known | written if isinstance(written.get("phase", ""), str) else known


def as_it_ran(plan: TrainPlan, facts: Mapping[str, Any]) -> TrainPlan:
    """Return the plan with the batch sizes that the script really used, which its source may not show."""
    names = ("micro_batch_size", "gradient_accumulation_steps", "eval_batch_size")
    seen = {name: facts[name] for name in names if isinstance(facts.get(name), int) and facts[name] > 0}
    plan = replace(plan, **seen)
    return replace(
        plan, effective_batch_size=plan.micro_batch_size * plan.gradient_accumulation_steps * plan.data_parallel
    )


def _recovery(
    plan: TrainPlan, facts: Mapping[str, Any], checkpoint: str | None, fits: FitsAfter | None
) -> Recovery | None:
    """Return the recovery that follows from a record; every node reaches the same answer."""
    asked = None if fits is None else lambda candidate: fits(plan, candidate, facts)
    found = next_attempt(plan, str(facts["phase"]), checkpoint, asked)
    if found is None or not plan.packs_anew or found.plan.micro_batch_size == plan.micro_batch_size:
        return found
    return replace(found, message=f"{found.message}; rows are packed anew, so a step holds other samples than before")


def last_of_this_run(plan: TrainPlan, started_ns: int) -> str | None:
    """Return the last undamaged checkpoint of this run, else the one it started from."""
    if not plan.resumable:
        return None
    if plan.engine != "transformers":
        return foreign.latest_of_trainer(plan.output_dir, since_ns=started_ns) or plan.resume_from
    own = [
        folder
        for folder in checkpoints(plan.output_dir)
        if is_complete(folder) and (folder / MARKER).stat().st_mtime_ns >= started_ns
    ]
    return newest_whole(own).folder or plan.resume_from


def _run_once(plan: TrainPlan, command: Command, env: Mapping[str, str]) -> int:
    """Run one attempt under an outer launcher; the plan is written to a file of this rank."""
    path = write_plan(plan, Path(plan.output_dir) / f".vramwise.rank{env['RANK']}.json")
    signals = Signals(Path(plan.output_dir) / f"{PIDS}.{env['RANK']}")
    # one rank keeps the list for all ranks
    with recorded(plan.output_dir) if env["RANK"] == "0" else nullcontext(), signals.forwarded():
        return signals.run(command(plan, str(path), env), env)


def _follow(plan: TrainPlan, fits: FitsAfter | None, command: Command, env: Mapping[str, str]) -> int:
    """Run a further node: it makes the same attempts as the first, using the same record in the shared folder."""
    node = find_nodes(env).rank
    signals = Signals(Path(plan.output_dir) / f"{PIDS}.node{node}")
    started_ns = 0
    with signals.forwarded():
        while True:
            path = write_plan(plan, Path(plan.output_dir) / f".vramwise.node{node}.json")
            started_ns = started_ns or path.stat().st_mtime_ns
            code = _unhidden(signals.run(command(plan, str(path), env), env), plan, signals)
            facts = out_of_memory_of(plan, code)
            if facts is None or signals.received is not None or not plan.recover:
                return code
            recovery = _recovery(plan, facts, last_of_this_run(plan, started_ns), fits)
            if recovery is None:
                return code
            plan = recovery.plan
