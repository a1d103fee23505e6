"""Checkpoint folders: which are complete, which is the last, and which may go.

A checkpoint is complete when its marker stands in it; the marker is written last and removed first, so a kill at any
moment leaves either the checkpoint or the one before it. Knows folders and names only: no torch.
"""

from __future__ import annotations

import errno
import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vramwise.errors import VramwiseError

MARKER = "vramwise-complete.json"
_PROBE_BYTES = 256 * 1024  # a file that was cut short may leave a little room
_NAME = re.compile(r"^checkpoint-(\d+)$")


def step_of(folder: Path) -> int | None:
    """The optimizer step a folder's name says, or None for another folder."""
    match = _NAME.match(folder.name)
    return int(match[1]) if match else None


def checkpoints(output_dir: str | Path) -> list[Path]:
    """Every checkpoint folder, complete or not, oldest step first."""
    root = Path(output_dir)
    found = [folder for folder in root.iterdir() if folder.is_dir()] if root.is_dir() else []
    steps = [(step, folder) for folder in found if (step := step_of(folder)) is not None]
    return [folder for _, folder in sorted(steps)]


def is_complete(folder: str | Path) -> bool:
    """Whether everything of this checkpoint was written."""
    return (Path(folder) / MARKER).is_file()


def latest_complete(output_dir: str | Path) -> str | None:
    """The complete checkpoint that was saved last: where to resume. None: start from the beginning.

    Last by time, not by step: a folder may also hold checkpoints of an earlier, longer run.
    """
    complete = [folder for folder in checkpoints(output_dir) if is_complete(folder)]
    return str(max(complete, key=_age_key)) if complete else None


def latest_of_trainer(output_dir: str | Path) -> str | None:
    """The last checkpoint that another engine's Trainer wrote: without our marker, its state file stands for it."""
    written = [folder for folder in checkpoints(output_dir) if (folder / "trainer_state.json").is_file()]
    return str(written[-1]) if written else None


def _age_key(folder: Path) -> tuple[int, int]:
    """When it was saved (the marker says; its file's time would not survive a copy), then the step."""
    try:
        saved_at = int(json.loads((folder / MARKER).read_text(encoding="utf-8"))["saved_at_ns"])
    except (OSError, ValueError, TypeError, KeyError):
        saved_at = 0
    return saved_at, step_of(folder) or 0


@contextmanager
def saving(output_dir: str | Path, what: str) -> Iterator[None]:
    """Say so where something cannot be saved because the disk is full: every library has its own error for that."""
    try:
        yield
    except Exception as error:
        if not _is_full(output_dir):
            raise
        raise VramwiseError(
            f"{what} cannot be saved: no space left in {output_dir}; free some, then go on with --resume"
        ) from error


def _is_full(folder: str | Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


def begin(folder: str | Path) -> None:
    """Before saving: clear away what an earlier, interrupted save left under the same name."""
    path = Path(folder)
    (path / MARKER).unlink(missing_ok=True)
    if path.is_dir():
        shutil.rmtree(path)


def mark_complete(folder: str | Path, *, step: int) -> None:
    """After saving: from here on the checkpoint counts."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    unfinished = path / f".{MARKER}"
    unfinished.write_text(json.dumps({"step": step, "saved_at_ns": time.time_ns()}) + "\n", encoding="utf-8")
    unfinished.replace(path / MARKER)


def rotate(output_dir: str | Path, *, keep: int | None, always: Iterable[str | None] = ()) -> None:
    """Delete incomplete checkpoints, and the oldest complete ones beyond `keep`. `always` names folders that stay."""
    protected = {Path(name).resolve() for name in always if name}
    complete = []
    for folder in checkpoints(output_dir):
        if is_complete(folder):
            complete.append(folder)
        else:
            remove(folder)
    if keep is None:
        return
    complete.sort(key=_age_key)
    for folder in complete[: max(0, len(complete) - max(1, keep))]:
        if folder.resolve() not in protected:
            remove(folder)


def remove(folder: Path) -> None:
    """Delete a checkpoint: its marker first, so that half a folder never counts."""
    (folder / MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
