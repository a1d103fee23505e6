"""Checkpoints of other trainers: without our marker, only their files show whether they can be resumed.

Nothing is unpickled here: files are only checked for truncation, never loaded.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, parse_json, read_file
from vramwise.training.checkpoints import checkpoints, is_complete

STATE = "trainer_state.json"
_MODELS = ("model*.safetensors", "adapter_model*.safetensors", "pytorch_model*.bin", "adapter_model*.bin")
_NEEDED = ("optimizer.pt", "scheduler.pt")
_MOST_HEADER_BYTES = 100 * 1024**2  # safetensors' own limit


def of_others(output_dir: str | Path) -> list[Path]:
    """Return checkpoint folders without our marker, oldest step first."""
    return [folder for folder in checkpoints(output_dir) if not is_complete(folder)]


def latest_of_trainer(output_dir: str | Path, *, since_ns: int = 0) -> str | None:
    """Return the last checkpoint of another engine's Trainer that can be resumed, judging by its files; or None.

    `since_ns`: only those written since, by the file system's clock.
    """
    for folder in reversed(checkpoints(output_dir)):
        state = folder / STATE
        if state.is_file() and state.stat().st_mtime_ns >= since_ns and not list(_damaged(folder)):
            return str(folder)
    return None


def usable(output_dir: str | Path) -> Path | None:
    """Return the last checkpoint of another trainer that the transformers engine can resume, or None."""
    return next((folder for folder in reversed(of_others(output_dir)) if not problems(folder)), None)


def problems(folder: str | Path) -> list[str]:
    """Return why the transformers engine cannot resume from this folder; empty if it can."""
    path = Path(folder)
    missing = [f"{name} is missing" for name in (STATE, *_NEEDED) if not (path / name).is_file()]
    if not any(list(path.glob(pattern)) for pattern in _MODELS):
        missing.append("it holds no model or adapter")
    return [*missing, *_damaged(path)]


def _damaged(path: Path) -> Iterator[str]:
    if (path / STATE).is_file() and not _is_state(path / STATE):
        yield f"{STATE} cannot be read"
    for file in sorted(path.glob("*.safetensors")):
        if not _whole_safetensors(file):
            yield f"{file.name} is cut short"
    for name in (*_NEEDED, "rng_state.pth"):
        if (path / name).is_file() and not zipfile.is_zipfile(path / name):  # torch's files end with a zip's table
            yield f"{name} is cut short"


def _is_state(path: Path) -> bool:
    try:
        state = parse_json(read_file(path, ceilings.DATA_BYTES, "a trainer's state"))
    except (VramwiseError, ValueError):
        return False
    return isinstance(state, dict) and isinstance(state.get("global_step", 0), int)


def _whole_safetensors(path: Path) -> bool:
    """Return whether the file is as long as its header says."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= _MOST_HEADER_BYTES:
                return False
            header = parse_json(file.read(length))
        ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
        return path.stat().st_size == 8 + length + max(ends, default=0)
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, VramwiseError):
        return False


def require_usable(folder: str | Path) -> None:
    """Raise VramwiseError for another trainer's checkpoint that cannot be resumed."""
    found = problems(folder)
    if found:
        raise VramwiseError(f"{folder} cannot be resumed: {', '.join(found)}")
