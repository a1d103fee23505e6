"""Restrictions on the process that traces a model.

For every model, connections are refused, and CPU time and address space are limited. A model's own code also runs
under a seccomp filter: it cannot use sockets, write, remove or rename files, or start processes. The filter applies to
the whole process and cannot be removed. It is available on Linux on x86-64 and arm64; elsewhere such code is not run.

Nor can such code read the environment and memory of the user's other processes through /proc. By default Linux lets a
process read these of every process of the same user, and environments hold tokens. A process in a Landlock domain, or
in a user namespace of its own, may read them of no process outside; the capabilities by which root could are dropped.
Whether it worked is checked on all processes before the code runs.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

CPU_SECONDS = 100
MEMORY_BYTES = 12 * 1024**3  # of address space: torch alone maps a few gigabytes, of which it uses 0.4
OWN_CODE_BYTES = 3 * 1024**3  # for a model's own code, in addition to what is mapped at `lock`

# Constants from linux/audit.h, and the numbers from asm/unistd.h of the system calls that are refused.
_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_REFUSED = {
    "x86_64": (
        *(41, 42, 43, 44, 46, 49, 50, 53, 288, 299, 307),  # sockets
        *(57, 58, 59, 322),  # fork, vfork, execve, execveat
        *(62, 101, 129, 200, 234, 297, 310, 311, 424, 434, 438),  # signals, ptrace, other processes' memory and files
        *(141, 142, 144, 160, 251, 314),  # priorities and limits, also of other processes
        *(76, 82, 83, 84, 85, 86, 87, 88, 90, 91, 92, 93, 94, 133),  # truncate, rename, mkdir, creat, unlink, chmod…
        *(258, 259, 260, 263, 264, 265, 266, 268, 280, 316, 452, 188, 189, 190, 197, 198, 199, 235, 132, 261),
        *(161, 165, 166, 155, 272, 308, 428, 429, 430, 431, 432, 442),  # mounts, roots, namespaces
        *(321, 425, 426, 427, 323, 248, 249, 250, 246, 169, 175, 313),  # bpf, io_uring, userfaultfd, keys, modules…
        *(
            103,
            159,
            163,
            164,
            167,
            168,
            170,
            171,
            172,
            173,
            179,
            227,
            300,
            301,
            305,
        ),  # reserved for root: clocks, swap…
        *(29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 240, 241),  # System V and POSIX queues
    ),
    "aarch64": (
        *(198, 199, 200, 201, 202, 203, 206, 211, 242, 243, 269),
        *(221, 281),
        *(129, 130, 131, 138, 240, 117, 270, 271, 424, 434, 438),
        *(140, 118, 119, 164, 30, 274),
        *(45, 33, 34, 35, 36, 37, 38, 276, 52, 53, 54, 55, 452, 5, 6, 7, 14, 15, 16, 88),
        *(39, 40, 41, 51, 97, 268, 428, 429, 430, 431, 432, 442),
        *(280, 425, 426, 427, 282, 217, 218, 219, 104, 142, 105, 273),
        *(116, 171, 89, 170, 224, 225, 161, 162, 60, 112, 262, 263, 266),
        *(180, 181, 183, 184, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196, 197),
    ),
}
_OPEN, _OPENAT = {"x86_64": 2, "aarch64": -1}, {"x86_64": 257, "aarch64": 56}
_CLONE, _UNKNOWN_TO_US = {"x86_64": 56, "aarch64": 220}, (435, 437)  # clone3 and openat2: libraries use the older ones
_IOCTL, _TYPING = {"x86_64": 16, "aarch64": 29}, (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: input for a terminal
_FCNTL, _SIGNALLING = {"x86_64": 72, "aarch64": 25}, (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX: signals by a file
_PRLIMIT = {"x86_64": 302, "aarch64": 261}
_WRITING = 0x1 | 0x2 | 0x40 | 0x200 | 0x400000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_TMPFILE
_THREAD = 0x10000
_ALLOW, _KILL = 0x7FFF0000, 0x80000000


def confine() -> None:
    """Apply the limits that hold for every trace."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("tracing has no network")

    socket.socket.connect = refuse  # type: ignore[method-assign]
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def lock() -> None:
    """Permanently restrict the process to reading and computing. Raises OSError if the system does not support it."""
    machine = platform.machine()
    if not sys.platform.startswith("linux") or machine not in _MACHINES:
        raise OSError("code that comes with a model runs on Linux only (x86-64, arm64), where it can be confined")
    import resource

    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + OWN_CODE_BYTES, mapped + OWN_CODE_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    program = _filter(machine)
    rules = b"".join(struct.pack("HBBI", *rule) for rule in program)
    kept = ctypes.create_string_buffer(rules, len(rules))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(kept))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_seccomp, by_filter = 38, 22, 2
    for words in ((no_new_privileges, 1, 0, 0, 0), (set_seccomp, by_filter, header, 0, 0)):
        if libc.prctl(*words):
            raise OSError(ctypes.get_errno(), "the kernel does not let the process that traces be confined")


def _filter(machine: str) -> list[tuple[int, int, int, int]]:
    """Return the filter in classic BPF: tuples of code, jump if true, jump if false, operand."""
    load, equal, any_bit, give = 0x20, 0x15, 0x45, 0x06
    at_number, at_machine, first_argument, second_argument, third_argument, high = 0, 4, 16, 24, 32, 4
    denied, unknown = 0x50000 | errno.EACCES, 0x50000 | errno.ENOSYS
    rules = [(load, 0, 0, at_machine), (equal, 1, 0, _MACHINES[machine]), (give, 0, 0, _KILL)]
    rules += [(load, 0, 0, at_number)]
    if machine == "x86_64":  # numbers of the x32 interface
        rules += [(0x35, 0, 1, 0x40000000), (give, 0, 0, _KILL)]
    for number in sorted(_REFUSED[machine]):
        rules += [(equal, 0, 1, number), (give, 0, 0, denied)]
    for number in _UNKNOWN_TO_US:
        rules += [(equal, 0, 1, number), (give, 0, 0, unknown)]
    for number, argument in ((_OPEN[machine], second_argument), (_OPENAT[machine], third_argument)):
        if number >= 0:
            rules += [(equal, 0, 4, number), (load, 0, 0, argument), (any_bit, 0, 1, _WRITING)]
            rules += [(give, 0, 0, denied), (give, 0, 0, _ALLOW)]
    for number, words in ((_IOCTL[machine], _TYPING), (_FCNTL[machine], _SIGNALLING)):
        rules += [(equal, 0, 2 * len(words) + 2, number), (load, 0, 0, second_argument)]
        for word in words:
            rules += [(equal, 0, 1, word), (give, 0, 0, denied)]
        rules += [(give, 0, 0, _ALLOW)]
    # limits may be read (the pointer to new ones is null) but not set
    rules += [(equal, 0, 6, _PRLIMIT[machine]), (load, 0, 0, third_argument), (equal, 0, 3, 0)]
    rules += [(load, 0, 0, third_argument + high), (equal, 0, 1, 0), (give, 0, 0, _ALLOW), (give, 0, 0, denied)]
    rules += [(equal, 0, 4, _CLONE[machine]), (load, 0, 0, first_argument), (any_bit, 1, 0, _THREAD)]
    rules += [(give, 0, 0, denied), (give, 0, 0, _ALLOW)]
    return [*rules, (give, 0, 0, _ALLOW)]


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
