"""Checkpoint folders: which are complete, which is the last, and which may be deleted.

A checkpoint is written to a separate folder, sealed with its marker, and then renamed: a kill at any moment leaves
either the checkpoint or the one before it. The marker, written last, lists the files (sizes and hashes), the run and
its settings; `faults` checks whether the listed files are unchanged. Folders without a marker of this run are never
deleted or overwritten, whether another trainer or an earlier run wrote them. Knows only folders and names: no torch.

A full disk while saving is reported in one sentence, whatever error the library raises.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, parse_json, read_file
from vramwise.whole_files import put_whole, sync_folder

MARKER = "vramwise-complete.json"
_FORMAT = 2  # format 1 listed no files
_CHUNK_BYTES = 1024**2
_READERS = 4  # hashing releases the GIL, so several files are read at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The content of a marker. `files` is None if it was written by a version that listed none."""

    step: int
    saved_at_ns: int = 0
    run: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, tuple[int, str]] | None = None


def read_marker(folder: str | Path) -> Marker | None:
    """Return the marker of a checkpoint, or None if there is no readable one."""
    try:
        return _marker(parse_json(read_file(Path(folder) / MARKER, ceilings.RUN_FILE_BYTES, "a marker")))
    except (VramwiseError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _marker(values: Any) -> Marker:
    listed = values.get("files") if isinstance(values, dict) else None
    files = (
        None if listed is None else {str(name): (int(one["bytes"]), str(one["sha256"])) for name, one in listed.items()}
    )
    return Marker(
        step=int(values["step"]),
        saved_at_ns=int(values.get("saved_at_ns", 0)),
        run=str(values.get("run", "")),
        settings={str(name): str(value) for name, value in dict(values.get("settings", {})).items()},
        files=files,
    )


def seal(folder: str | Path, *, step: int, run: str = "", settings: Mapping[str, str] | None = None) -> None:
    """Sync everything in the folder to disk, then write the marker that lists it.

    From then on the checkpoint counts.
    """
    path = Path(folder)
    names = _names(path)
    with ThreadPoolExecutor(_READERS) as pool:
        digests = list(pool.map(lambda name: _digest(path / name, sync=True), names))
    for inner in {(path / name).parent for name in names} | {path}:
        sync_folder(inner)
    listed = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in zip(names, digests, strict=True)}
    values = {"format": _FORMAT, "step": step, "saved_at_ns": time.time_ns(), "run": run}
    text = json.dumps({**values, "settings": dict(settings or {}), "files": listed}, indent=1) + "\n"
    put_whole(path / MARKER, text.encode("utf-8"))
    sync_folder(path)


def _names(path: Path) -> list[str]:
    ours = (MARKER, f".{MARKER}")  # also leftovers of an interrupted write
    files = (one for one in path.rglob("*") if one.is_file() and not one.name.startswith(ours))
    return sorted(one.relative_to(path).as_posix() for one in files)


def _digest(path: Path, *, sync: bool = False) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
        if sync:
            os.fsync(file.fileno())
    return size, digest.hexdigest()


def faults(folder: str | Path, *, contents: bool = True) -> list[str]:
    """Return what differs from the marker, file by file; empty if nothing does.

    `contents=False` compares only names and sizes.
    """
    path = Path(folder)
    marker = read_marker(path)
    if marker is None:
        return [f"{MARKER} cannot be read" if (path / MARKER).exists() else "it was not finished"]
    if marker.files is None:
        return []
    listed = marker.files
    found = {name: _size_fault(path / name, size) for name, (size, _) in listed.items()}
    if contents:
        intact = [name for name, fault in found.items() if fault is None]
        with ThreadPoolExecutor(_READERS) as pool:
            compared = pool.map(lambda name: _content_fault(path / name, listed[name][1]), intact)
            found |= dict(zip(intact, compared, strict=True))
    return [f"{name} {fault}" for name, fault in found.items() if fault]


def _size_fault(path: Path, size: int) -> str | None:
    try:
        found = path.stat().st_size
    except OSError:
        return "is missing"
    return (
        None if found == size else f"has {found} of {size} bytes" if found < size else f"has {found} bytes, not {size}"
    )


def _content_fault(path: Path, digest: str) -> str | None:
    try:
        return None if _digest(path)[1] == digest else "is not what was saved"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def sentence(folder: str | Path, found: Sequence[str]) -> str:
    """Return `checkpoint-9 is not whole: optimizer.pt has 100 of 5371 bytes`."""
    shown = [*found[:3], *([f"{len(found) - 3} more"] if len(found) > 3 else [])]
    return f"{Path(folder).name} is not whole: {', '.join(shown)}"


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


_PROBE_BYTES = 256 * 1024  # a truncated file may leave a little space
_FULL = (errno.ENOSPC, errno.EDQUOT)
_WORDS = ("no space left", "os error 28", "disk quota exceeded")  # the messages of non-Python libraries


@contextmanager
def saving(output_dir: str | Path, what: str, *, probe: bool = True) -> Iterator[None]:
    """Raise VramwiseError if something cannot be saved because the disk is full.

    `probe`: also if the error itself does not say so.
    """
    try:
        yield
    except VramwiseError:
        raise
    except Exception as error:
        if not (_says_full(error) or (probe and _is_full(output_dir))):
            raise
        raise VramwiseError(
            f"{what} cannot be saved: no space left in {output_dir}; checkpoints saved before are kept: free some "
            "space, then go on with --resume"
        ) from error


def _says_full(error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _FULL:
            return True
        if any(words in str(seen).lower() for words in _WORDS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _is_full(folder: str | Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        return error.errno in _FULL
    return False
