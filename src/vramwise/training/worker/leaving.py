"""How one of several ranks ends its process."""

from __future__ import annotations

import atexit
import os
import sys


def leave_done(code: int) -> int:
    """Destroy the process group, run exit handlers, and end without unwinding Python.

    A backend's own threads may still need the interpreter while it shuts down; Python then ends them in the middle of
    C++ code, and a finished run aborts ("terminate called without an active exception").
    """
    if not _one_of_several():
        return code
    import torch.distributed as distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
    atexit._run_exitfuncs()  # trackers send their last data there
    return leave_now(code)


def leave_now(code: int) -> int:
    """End immediately if other ranks wait for this one in a collective that will never finish."""
    if not _one_of_several():
        return code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _one_of_several() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1") or 1) > 1
