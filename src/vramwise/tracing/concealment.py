"""Keeps the code of a model from reading the environment and memory of the user's other processes through /proc.

By default Linux lets a process read these of every process of the same user, and environments hold tokens. A process
in a Landlock domain, or in a user namespace of its own, may read them of no process outside; the capabilities by which
root could are dropped. Whether it worked is checked on all processes before the code runs.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

_NO_NEW_PRIVILEGES = 38
_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # Landlock's system calls, the same on x86-64 and arm64
_MAKE_BLOCK_DEVICE = 1 << 11  # a domain must forbid something
_NEW_USER_NAMESPACE = 0x10000000
_CAPABILITIES_VERSION = 0x20080522
_PROCESSES = Path("/proc")


def conceal_others() -> None:
    """Make other processes unreadable for this one. Call it before threads start: each has its own restrictions.

    Raises OSError if the kernel does not support it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if not _enter_domain(libc):
        libc.unshare(_NEW_USER_NAMESPACE)
    _drop_capabilities(libc)
    if any(_is_readable(one) for one in _PROCESSES.iterdir() if one.name.isdigit() and int(one.name) != os.getpid()):
        raise OSError("code that comes with a model is not run: this kernel would let it read your other processes")


def _enter_domain(libc: ctypes.CDLL) -> bool:
    forbidden = ctypes.c_uint64(_MAKE_BLOCK_DEVICE)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(forbidden), ctypes.c_size_t(ctypes.sizeof(forbidden)), 0)
    if ruleset < 0:
        return False
    try:
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)())


def _is_readable(process: Path) -> bool:
    """Return whether a process's environment can be read; kernel threads have none."""
    with suppress(OSError), (process / "environ").open("rb") as file:
        return bool(file.read(1))
    return False
