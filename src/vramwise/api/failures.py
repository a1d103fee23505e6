"""`diagnose` and `replay` as functions."""

from __future__ import annotations

from typing import BinaryIO

from vramwise.api.sources import PathLike
from vramwise.diagnosis.evidence import Diagnosis
from vramwise.diagnosis.reading import read_all
from vramwise.errors import VramwiseError
from vramwise.facts.torch import parse_torch_version
from vramwise.options import Options
from vramwise.recordings import replay as allocator
from vramwise.recordings.reader import read_recording
from vramwise.recordings.replay import ReplayResult


def diagnose(
    log: PathLike | BinaryIO | None = None,
    *,
    config: PathLike | None = None,
    snapshot: PathLike | None = None,
    options: Options | None = None,
    model: str | None = None,
) -> Diagnosis:
    """Explain what ended a run, from its log (a path or a binary stream), its config and its memory snapshot."""
    if log is None and snapshot is None:
        raise VramwiseError("nothing to diagnose: pass a log or a snapshot")
    names = [None if name is None else str(name) for name in (config, snapshot)]
    return read_all(log, config=names[0], snapshot=names[1], options=options, model=model).diagnosis


def replay(
    path: PathLike,
    *,
    settings: str | None = None,
    torch: str | None = None,
    limit_bytes: int | None = None,
    device: int | None = None,
) -> ReplayResult:
    """Replay a torch memory snapshot or a trace file in the simulated allocator, with its own settings or others."""
    version = None if torch is None else parse_torch_version(torch)
    recording = read_recording(path, device)
    return allocator.replay(recording, settings=settings, torch=version, limit_bytes=limit_bytes)
