"""Writes that never leave half a file.

A write creates a sibling file, syncs it and renames it over the target. `write_atomic` replaces a user's file,
`write_new` writes one of our own, and `put_whole` is `write_new` for callers that handle an OSError themselves. A
killed process leaves its sibling behind; the next write of the same file removes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path

from vramwise.errors import ConfigError, VramwiseError

try:
    import fcntl
except ImportError:  # Windows: siblings are not locked, and none is removed
    fcntl = None  # type: ignore[assignment]

# A longer part of the name could make the sibling's name too long.
_LONGEST_IN_SIBLING = 40
_SIBLING_END = re.compile(r"[0-9a-f]{12}\.tmp")
# The errors of systems and file systems that cannot sync a folder.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)


class WriteRefused(ConfigError):  # noqa: N818 (it reads as what happened)
    """Raised when a file was not written; the message says why."""


def write_atomic(path: str, data: bytes, *, expected: bytes) -> str:
    """Replace a file's content completely or not at all, and return a warning about hard links ("" if none).

    `expected` is the content that was read before; raises WriteRefused if the file has changed since. The mode is kept,
    and the owner if permitted. For a symlink, the target is written and the link stays. Other hard links keep the old
    content, because a rename cannot reach them; the returned sentence says so.
    """
    target = Path(os.path.realpath(path))  # unlike Path.resolve, it never raises
    try:
        if not stat.S_ISREG(target.stat().st_mode):
            raise WriteRefused("not a regular file: nothing was written")
        _refuse_if_changed(target, expected)
        if not os.access(target, os.W_OK):  # a rename would succeed even on a read-only file
            raise PermissionError(errno.EACCES, "permission denied: the file is read-only")
        others = target.stat().st_nlink - 1
        _put(target, data, expected)
    except OSError as error:
        reason = error.strerror or str(error)
        raise WriteRefused(f"cannot write the file, which is unchanged: {reason[:1].lower()}{reason[1:]}") from error
    if others < 1:
        return ""
    names = "1 other name still has" if others == 1 else f"{others} other names still have"
    return f"{path} had hard links: {names} the old content"


def refuse_unwritable(path: str) -> None:
    """Raise WriteRefused if a file cannot be replaced or made, before work is done for its content."""
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            return  # pipes and devices are written directly
        if target.exists() and not os.access(target, os.W_OK):
            raise WriteRefused(f"cannot write {path}: the file is read-only")
        if not target.parent.is_dir():
            raise WriteRefused(f"cannot write {path}: there is no folder {target.parent}")
        if not os.access(target.parent, os.W_OK):
            raise WriteRefused(f"cannot write {path}: no file can be made in its folder")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise WriteRefused(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error


def write_new(path: str | Path, data: bytes, *, make_folder: bool = False) -> None:
    """Write one of our own files completely or not at all, replacing any old one. Pipes are written directly.

    Raises VramwiseError if it cannot be written.
    """
    try:
        if make_folder:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        put_whole(path, data)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise VramwiseError(f"cannot write {path}: {reason}") from error


def put_whole(path: str | Path, data: bytes) -> None:
    """Like `write_new`, but raises OSError itself, for callers that handle errors such as a full disk."""
    target = Path(path)
    if target.exists() and not target.is_file():
        target.write_bytes(data)
    else:
        _put(Path(os.path.realpath(target)), data)


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk so that a rename in it is durable, if the system supports that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)


def _put(target: Path, data: bytes, expected: bytes | None = None) -> None:
    """Write a sibling, sync it and rename it over the target. `expected`: the content the target must still have."""
    before = target.stat() if target.exists() else None
    clear_leftovers(target)
    # A new file gets the default mode. A replacement stays private until it has the mode of the old file.
    temporary, descriptor = _open_sibling(target, 0o666 if before is None else 0o600)
    file = os.fdopen(descriptor, "wb")
    try:
        file.write(data)
        file.flush()
        if before is not None:
            _take_over(temporary, before)
        os.fsync(file.fileno())
        if fcntl is None:  # Windows cannot rename an open file; elsewhere the lock lasts until the sibling is gone
            file.close()
        if expected is not None:
            _refuse_if_changed(target, expected)
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        temporary.unlink(missing_ok=True)
        raise
    finally:
        file.close()
    with contextlib.suppress(OSError):  # the file is in place; callers that need more certainty sync the folder too
        sync_folder(target.parent)


def _open_sibling(target: Path, mode: int) -> tuple[Path, int]:
    """Create a file beside the target, locked for as long as this process has it open."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        temporary = target.with_name(f"{_sibling_start(target)}{os.urandom(6).hex()}.tmp")
        descriptor = os.open(temporary, flags, mode)
        with contextlib.suppress(BlockingIOError):
            if not _lock(descriptor) or os.fstat(descriptor).st_nlink:
                return temporary, descriptor
        os.close(descriptor)  # another process took it for a leftover before it was locked


def clear_leftovers(path: str | Path) -> None:
    """Remove siblings left behind by killed processes; siblings that are being written stay."""
    target = Path(os.path.realpath(path))
    start = _sibling_start(target)
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(start) and _SIBLING_END.fullmatch(name, len(start)):
                _remove_if_abandoned(entry.path)


def _sibling_start(target: Path) -> str:
    return f".{target.name[:_LONGEST_IN_SIBLING]}.vramwise-"


def _remove_if_abandoned(path: str) -> None:
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with contextlib.suppress(OSError):
        descriptor = os.open(path, flags)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode) and _lock(descriptor):
                os.unlink(path)  # noqa: PTH108 (the path exactly as the system gave it)
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock an open file until it is closed or the process ends; return False if locks are not available.

    Raises BlockingIOError if another process holds the lock.
    """
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        return False
    return True


def _take_over(temporary: Path, before: os.stat_result) -> None:
    """Give a file the owner and mode of the file that it replaces."""
    with contextlib.suppress(OSError, AttributeError):  # not the owner, or a system without owners
        os.chown(temporary, before.st_uid, before.st_gid)
    temporary.chmod(stat.S_IMODE(before.st_mode))


def _refuse_if_changed(target: Path, expected: bytes) -> None:
    with target.open("rb") as file:
        if file.read(len(expected) + 1) != expected:
            raise WriteRefused("the file changed while it was being fixed, so it was left unchanged; run again")
