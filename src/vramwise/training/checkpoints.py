"""Checkpoint folders: which are complete, which is the last, and which may be deleted.

A checkpoint is written to a separate folder, sealed with its marker, and then renamed: a kill at any moment leaves
either the checkpoint or the one before it. Folders without a marker of this run are never deleted or overwritten,
whether another trainer or an earlier run wrote them. Knows only folders and names: no torch.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vramwise.training.marker import MARKER, Marker, faults, read_marker, seal, sentence
from vramwise.whole_files import sync_folder

ASIDE = ".vramwise-saving"
# The second form is used if another run or trainer already uses the name.
_NAME = re.compile(r"^checkpoint-([0-9]{1,15})(?:-vramwise(?:-[0-9]{1,6})?)?$")


def step_of(folder: Path) -> int | None:
    """Return the optimizer step in a folder's name, or None for another folder."""
    match = _NAME.match(folder.name)
    return int(match[1]) if match else None


def checkpoints(output_dir: str | Path) -> list[Path]:
    """Return every checkpoint folder, whoever wrote it, oldest step first."""
    root = Path(output_dir)
    found = [folder for folder in root.iterdir() if folder.is_dir()] if root.is_dir() else []
    steps = [(step, folder) for folder in found if (step := step_of(folder)) is not None]
    return [folder for _, folder in sorted(steps)]


def is_complete(folder: str | Path) -> bool:
    """Return whether this checkpoint was written completely by us."""
    return (Path(folder) / MARKER).is_file()


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The checkpoint to resume from (None: there is none), and a sentence for each newer one that is damaged."""

    folder: str | None
    passed_over: Sequence[str] = ()


def latest_whole(output_dir: str | Path, wanted: Callable[[Marker], bool] | None = None) -> Latest:
    """Return the undamaged checkpoint that was saved last, checking every file's hash.

    `wanted` filters by marker. The last one by time, not by step: a folder may also hold checkpoints of an earlier,
    longer run.
    """
    complete = [folder for folder in checkpoints(output_dir) if is_complete(folder)]
    if wanted is not None:
        complete = [folder for folder in complete if (marker := read_marker(folder)) is None or wanted(marker)]
    return newest_whole(sorted(complete, key=_age_key))


def newest_whole(oldest_first: Sequence[Path]) -> Latest:
    """Return the last of these that is undamaged."""
    passed_over: list[str] = []
    for folder in reversed(oldest_first):
        found = faults(folder)
        if not found:
            return Latest(folder=str(folder), passed_over=passed_over)
        passed_over.append(sentence(folder, found))
    return Latest(folder=None, passed_over=passed_over)


def _age_key(folder: Path) -> tuple[int, int]:
    """Return when it was saved (from the marker, since file times do not survive a copy), then the step."""
    marker = read_marker(folder)
    return 0 if marker is None else marker.saved_at_ns, step_of(folder) or 0


def begin(output_dir: str | Path, step: int) -> Path:
    """Return the empty folder to save to; removes what an interrupted save left there."""
    aside = Path(output_dir) / ASIDE
    if aside.exists():
        shutil.rmtree(aside)
    folder = aside / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    return folder


def final_path(output_dir: str | Path, step: int, *, run: str = "") -> Path:
    """Return the name for this run's checkpoint: never one that another run or trainer uses."""
    root = Path(output_dir)
    names = [f"checkpoint-{step}", f"checkpoint-{step}-vramwise"]
    number = 2
    while os.path.lexists(path := root / names[0]) and not _is_of(path, run):
        names = [*names[1:], f"checkpoint-{step}-vramwise-{number}"]
        number += 1
    return path


def _is_of(folder: Path, run: str) -> bool:
    marker = read_marker(folder)
    return marker is not None and marker.run == run


def finish(output_dir: str | Path, step: int, *, run: str = "", settings: Mapping[str, str] | None = None) -> Path:
    """Seal the folder that `begin` returned and rename it to its final name, from when on it counts."""
    root = Path(output_dir)
    folder = root / ASIDE / f"checkpoint-{step}"
    seal(folder, step=step, run=run, settings=settings)
    path = final_path(root, step, run=run)
    if path.exists():  # this run's own checkpoint, from before it went back to an earlier step
        path.rename(root / ASIDE / "replaced")
    folder.rename(path)
    sync_folder(root)
    shutil.rmtree(root / ASIDE, ignore_errors=True)
    return path


def give_up(output_dir: str | Path) -> None:
    """Delete what a failed save wrote, to free its space."""
    shutil.rmtree(Path(output_dir) / ASIDE, ignore_errors=True)


def rotate(output_dir: str | Path, *, keep: int | None, run: str = "", always: Iterable[str | None] = ()) -> None:
    """Delete this run's oldest checkpoints beyond `keep`, damaged ones first. `always` names folders that stay."""
    if keep is None:
        return
    protected = {Path(name).resolve() for name in always if name}
    own = [folder for folder in checkpoints(output_dir) if _is_of(folder, run) and not folder.is_symlink()]
    own.sort(key=lambda folder: (not faults(folder, contents=False), *_age_key(folder)))
    for folder in own[: max(0, len(own) - max(1, keep))]:
        if folder.resolve() not in protected:
            remove(folder)


def remove(folder: Path) -> None:
    """Delete a checkpoint: its marker first, so that a partial folder never counts."""
    (folder / MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
