"""Checks the files of a checkpoint that torch unpickles: they may contain only tensors and plain values.

torch refuses everything else itself, but with a traceback in the middle of a start. Here every such file is tried
before anything else is loaded, and a refusal is one sentence. Other trainers' processes use this too.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.training.guard.oom import is_out_of_memory

_UNPICKLED = (".pt", ".pth", ".bin")
_NEVER_LOADED = ("training_args.bin",)
_GLOBAL = re.compile(r"GLOBAL ([\w.]{1,80})")
_INSTEAD = "resume from another checkpoint (--resume-from), or begin anew with --fresh"


def refuse_payloads(checkpoint: str | None) -> None:
    """Raise VramwiseError for a checkpoint file that torch would not load: unsafe objects, or not torch's format."""
    folder = Path(checkpoint) if checkpoint else None
    for path in sorted(folder.iterdir()) if folder is not None and folder.is_dir() else ():
        if path.suffix in _UNPICKLED and path.name not in _NEVER_LOADED and path.is_file():
            _try(path)


def _try(path: Path) -> None:
    import torch

    try:
        with _numpy_allowed() if path.name.startswith("rng_state") else nullcontext():
            torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        named = _GLOBAL.search(str(error))
        what = f"it names {named[1]}" if named else "it is no plain pickle of tensors"
        raise VramwiseError(
            f"{path} is refused: {what}, and a checkpoint may hold only tensors and plain values, because anything "
            f"else could run code; {_INSTEAD}"
        ) from error
    except Exception as error:
        raise _unusable(str(path), error) from error


def _numpy_allowed() -> AbstractContextManager[object]:
    """Allow the parts of numpy's random state, which transformers also allows in this file."""
    from transformers.trainer_pt_utils import safe_globals

    allowed: AbstractContextManager[object] = safe_globals()
    return allowed


@contextmanager
def resuming(checkpoint: str | None) -> Iterator[None]:
    """Raise a one-sentence error instead of a traceback if a checkpoint does not fit this run."""
    try:
        yield
    except VramwiseError:
        raise
    except Exception as error:
        if checkpoint is None or is_out_of_memory(error):
            raise
        raise _unusable(checkpoint, error) from error


def _unusable(what: str, error: Exception) -> VramwiseError:
    said = str(error).strip().partition("\n")[0][:200]
    return VramwiseError(f"{what} cannot be resumed: {type(error).__name__}: {said}; {_INSTEAD}")
