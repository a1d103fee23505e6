"""Checkpoint folders: which are whole, which is the last, and which may go.

A checkpoint is written in a folder aside, sealed with its marker, and then given its name: a kill at any moment leaves
either the checkpoint or the one before it, and what has no marker of this run is never deleted or written over, be it
another trainer's or an earlier run's. Knows folders and names only: no torch.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vramwise.files import sync_folder
from vramwise.training.marker import MARKER, Marker, faults, read_marker, seal, sentence

ASIDE = ".vramwise-saving"
# The second form is taken where another run's or trainer's checkpoint has the name.
_NAME = re.compile(r"^checkpoint-([0-9]{1,15})(?:-vramwise(?:-[0-9]{1,6})?)?$")


def step_of(folder: Path) -> int | None:
    """The optimizer step a folder's name says, or None for another folder."""
    match = _NAME.match(folder.name)
    return int(match[1]) if match else None


def checkpoints(output_dir: str | Path) -> list[Path]:
    """Every checkpoint folder, whoever wrote it, oldest step first."""
    root = Path(output_dir)
    found = [folder for folder in root.iterdir() if folder.is_dir()] if root.is_dir() else []
    steps = [(step, folder) for folder in found if (step := step_of(folder)) is not None]
    return [folder for _, folder in sorted(steps)]


def is_complete(folder: str | Path) -> bool:
    """Whether everything of this checkpoint was written, by us."""
    return (Path(folder) / MARKER).is_file()


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The checkpoint to go on from (None: there is none), and a sentence for each newer one that is not whole."""

    folder: str | None
    passed_over: Sequence[str] = ()


def latest_whole(output_dir: str | Path, wanted: Callable[[Marker], bool] | None = None) -> Latest:
    """The whole checkpoint that was saved last, every file compared with its hash; of those `wanted` by their markers.

    Last by time, not by step: a folder may also hold checkpoints of an earlier, longer run.
    """
    complete = [folder for folder in checkpoints(output_dir) if is_complete(folder)]
    if wanted is not None:
        complete = [folder for folder in complete if (marker := read_marker(folder)) is None or wanted(marker)]
    return newest_whole(sorted(complete, key=_age_key))


def newest_whole(oldest_first: Sequence[Path]) -> Latest:
    """The last of these that is whole."""
    passed_over: list[str] = []
    for folder in reversed(oldest_first):
        found = faults(folder)
        if not found:
            return Latest(folder=str(folder), passed_over=passed_over)
        passed_over.append(sentence(folder, found))
    return Latest(folder=None, passed_over=passed_over)


def _age_key(folder: Path) -> tuple[int, int]:
    """When it was saved (the marker says; its file's time would not survive a copy), then the step."""
    marker = read_marker(folder)
    return 0 if marker is None else marker.saved_at_ns, step_of(folder) or 0


def begin(output_dir: str | Path, step: int) -> Path:
    """Before saving: the empty folder to write to. What an interrupted save left aside goes; it never had a name."""
    aside = Path(output_dir) / ASIDE
    if aside.exists():
        shutil.rmtree(aside)
    folder = aside / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    return folder


def final_path(output_dir: str | Path, step: int, *, run: str = "") -> Path:
    """The name for this run's checkpoint: never one that another run or trainer has taken."""
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
    """After saving: seal what `begin` gave and let it take its name, from where on it counts."""
    root = Path(output_dir)
    folder = root / ASIDE / f"checkpoint-{step}"
    seal(folder, step=step, run=run, settings=settings)
    path = final_path(root, step, run=run)
    if path.exists():  # this run's own, from before it was set back to an earlier step
        path.rename(root / ASIDE / "replaced")
    folder.rename(path)
    sync_folder(root)
    shutil.rmtree(root / ASIDE, ignore_errors=True)
    return path


def give_up(output_dir: str | Path) -> None:
    """A save that failed: what it wrote goes, so that it takes no room from what comes after."""
    shutil.rmtree(Path(output_dir) / ASIDE, ignore_errors=True)


def rotate(output_dir: str | Path, *, keep: int | None, run: str = "", always: Iterable[str | None] = ()) -> None:
    """Delete this run's oldest checkpoints beyond `keep`; damaged ones first. `always` names folders that stay."""
    if keep is None:
        return
    protected = {Path(name).resolve() for name in always if name}
    own = [folder for folder in checkpoints(output_dir) if _is_of(folder, run) and not folder.is_symlink()]
    own.sort(key=lambda folder: (not faults(folder, contents=False), *_age_key(folder)))
    for folder in own[: max(0, len(own) - max(1, keep))]:
        if folder.resolve() not in protected:
            remove(folder)


def remove(folder: Path) -> None:
    """Delete a checkpoint: its marker first, so that half a folder never counts."""
    (folder / MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
