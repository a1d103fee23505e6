"""The entry point of `diagnose`: open the files, read them, conclude.

The only module of this package that reads files.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

from vramwise.diagnosis.case import snapshot_memory
from vramwise.diagnosis.causes.ranking import OUT_OF_MEMORY, failure_of
from vramwise.diagnosis.evidence import Diagnosis, Frame, LogFacts, Setup
from vramwise.diagnosis.read.log import read_log
from vramwise.diagnosis.read.snapshot import SnapshotFacts, snapshot_facts
from vramwise.diagnosis.read.told_setup import read_setup
from vramwise.diagnosis.verdict import conclude, symptom_of
from vramwise.diagnosis.witness import Ghost, summon, summon_told
from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, parse_json
from vramwise.limits.json_values import OverBudget
from vramwise.opening.options import Options, Text
from vramwise.opening.subject import Subject, open_subject
from vramwise.recordings.reader import read_recording
from vramwise.recordings.recording import Recording, calls_of
from vramwise.trainers.registry import all_identities

_MOST_CONFIG_BYTES = 1 << 15
_MOST_NOTEBOOK_BYTES, _FEWEST_LINES = 1 << 25, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A diagnosis and the recording it used, for drawing."""

    diagnosis: Diagnosis
    recording: Recording | None


def read_all(
    log: str | Path | BinaryIO | None,
    *,
    config: str | None = None,
    snapshot: str | None = None,
    options: Options | None = None,
    model: str | None = None,
) -> Reading:
    """Read the given files and return the diagnosis. Raises VramwiseError if one cannot be read."""
    recording = None if snapshot is None else read_recording(snapshot, most_events=ceilings.DIAGNOSED_EVENTS)
    facts = _read(log)
    failure = failure_of(facts.symptoms)
    allowed = failure.memory.allowed_bytes if failure is not None and failure.memory is not None else None
    shot = None if recording is None else snapshot_facts(recording, allowed_bytes=allowed)
    symptom = symptom_of(facts, shot, _frames(recording, shot))
    memory = symptom.memory if symptom else None
    if memory is None and shot is not None and shot.failed:
        memory = snapshot_memory(shot)
    ghost: Ghost | None = None
    unused = ""
    if config is not None:
        options = options or Options()
        try:
            subject = open_subject(config, options, model=model)
            unused = _of_another_trainer(subject, facts)
        except VramwiseError as error:
            if isinstance(config, Text) or not Path(config).is_file():
                raise
            unused = str(error)
            facts = replace(facts, setup=_completed(facts.setup, config))
        if not unused:
            if (stated := facts.settings.get("base_parameters")) is not None:
                subject = subject.with_parameters(int(stated.value))
            ghost = summon(subject, memory, named_gpu=options.gpu is not None)
    told = None
    if ghost is None and symptom is not None and symptom.kind in OUT_OF_MEMORY:
        told = summon_told(facts.setup, memory, options)
    diagnosis = conclude(facts, symptom, ghost, shot, told, options)
    if unused:
        diagnosis = replace(diagnosis, notes=(*diagnosis.notes, f"--config was not simulated: {unused}"))
    if recording is not None and recording.events.left_out:
        note = f"the first {recording.events.left_out:,} events of the snapshot were skipped: it has too many"
        diagnosis = replace(diagnosis, notes=(*diagnosis.notes, note))
    return Reading(diagnosis=diagnosis, recording=recording)


def _of_another_trainer(subject: Subject, facts: LogFacts) -> str:
    """Return why a config is not that of the run, if the log names another trainer; "" otherwise."""
    having_files = {one.package for one in all_identities() if one.own_setting}
    named = facts.trainers & having_files
    if not named or subject.trainer.package in named or subject.trainer.package not in having_files:
        return ""
    return f"it is a config of {subject.trainer.title}, and the log is from {' and '.join(sorted(named))}"


def _completed(setup: Setup, config: str | Path) -> Setup:
    """Return a set-up with what the text of an unreadable config adds to it."""
    with Path(config).open("rb") as stream:
        told = read_setup(stream.read(_MOST_CONFIG_BYTES).decode("utf-8", "replace"))
    return replace(told, **{name: value for name, value in asdict(setup).items() if value})


def _read(log: str | Path | BinaryIO | None) -> LogFacts:
    if log is None:
        return LogFacts(name="", lines=0, size_bytes=0)
    if not isinstance(log, (str, Path)):
        return read_log(log, "-")
    try:
        with Path(log).open("rb") as stream:
            kind = os.fstat(stream.fileno()).st_mode
            if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
                # A device may be endless, unlike a pipe or standard input.
                raise VramwiseError(f"{log} is a device, not a log: name a file, or - for standard input")
            return read_log(_spread(stream) if str(log).endswith(".ipynb") else stream, str(log))
    except OSError as error:
        raise VramwiseError(f"{log} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the name
        raise VramwiseError(f"{str(log)!r} cannot be read: {error}") from error


def _spread(stream: BinaryIO) -> BinaryIO:
    """Return a notebook that was saved on one line with its outputs line by line."""
    data = stream.read(_MOST_NOTEBOOK_BYTES)
    if data.count(b"\n") < _FEWEST_LINES:
        with contextlib.suppress(ValueError, OverBudget):  # not a notebook, or too large: it is read as it is
            data = json.dumps(parse_json(data.decode("utf-8")), indent=1, ensure_ascii=False).encode("utf-8")
    return io.BytesIO(data)


def _frames(recording: Recording | None, shot: SnapshotFacts | None) -> tuple[Frame, ...]:
    """Return the stack of a recorded failure, outermost call first, as in tracebacks."""
    stack = recording.stack(shot.at) if recording is not None and shot is not None and shot.failed else None
    return tuple(Frame(call.file, call.name, "") for call in reversed(calls_of(stack)))
