"""Config files on disk: which ones a path names, reading one, and replacing one without ever leaving half of it.

The one place of this room that touches files. It knows nothing of YAML.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from vramwise.documents.limits import MAX_BYTES, too_large
from vramwise.errors import ConfigError, VramwiseError

STDIN = "-"
_SUFFIXES = (".yml", ".yaml")
_FOREIGN_FOLDERS = {
    "node_modules",
    "site-packages",
    "__pycache__",
    "venv",
}  # hidden folders (.venv, .git) are skipped too


def config_files(paths: Iterable[str]) -> list[str]:
    """The files that paths name, each once: a file or `-` is itself, a folder every *.yml and *.yaml below it."""
    found: dict[str, None] = {}
    for path in paths:
        if path != STDIN and os.path.isdir(path):  # noqa: PTH112 (a Path would normalise what the user typed)
            found.update(dict.fromkeys(_yaml_below(path)))
        else:
            found[path] = None
    return list(found)


def _yaml_below(folder: str) -> list[str]:
    files: list[str] = []
    unreadable: list[OSError] = []
    # os.walk does not follow links to folders, so a loop of links cannot trap it.
    for parent, folders, names in os.walk(folder, onerror=unreadable.append):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _FOREIGN_FOLDERS)
        found = (os.path.join(parent, name) for name in sorted(names) if name.endswith(_SUFFIXES))  # noqa: PTH118
        files += [path for path in found if not _is_pipe_or_device(path)]
    if unreadable and not files:
        raise _unreadable(unreadable[0])
    if not files:
        raise ConfigError("this folder holds no *.yml or *.yaml file: name a config")
    return files


def _is_pipe_or_device(path: str) -> bool:
    """Whether reading could wait for ever; only where a folder is scanned: a pipe that was named is meant."""
    try:
        return not stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:  # a broken link: said when it is read
        return False


def read_config_bytes(path: str) -> bytes:
    """The bytes of a config; `-` reads standard input. Never reads more than a config's worth, whatever the path is."""
    try:
        if path == STDIN:
            return _read_limited(sys.stdin.buffer)
        with Path(path).open("rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_BYTES:
                raise too_large()
            return _read_limited(file)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise _unreadable(error) from error


def _read_limited(file: BinaryIO) -> bytes:
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise too_large()
    return data


def _unreadable(error: OSError | ValueError) -> ConfigError:
    if isinstance(error, FileNotFoundError):
        return ConfigError("this file does not exist: check the path")
    if isinstance(error, IsADirectoryError):
        return ConfigError("this is a folder: name a file in it")
    if isinstance(error, PermissionError):
        return ConfigError("this cannot be read: permission denied; check its mode and owner")
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return ConfigError(f"this cannot be read: {reason[:1].lower()}{reason[1:]}")


class WriteRefused(ConfigError):  # noqa: N818 (it reads as what happened)
    """A file that was left as it is, and why."""


def write_atomic(path: str, data: bytes, *, expected: bytes) -> None:
    """Replace a file's content, all or nothing. `expected`: what it held when it was read; if that changed, refuse.

    Mode stays, owner where permitted; of a symlink the target is written and the link stays.
    """
    target = Path(os.path.realpath(path))  # unlike Path.resolve, it never raises
    try:
        if not stat.S_ISREG(target.stat().st_mode):
            raise WriteRefused("this is not a regular file: it was not written")
        if _holds_something_else(target, expected):
            raise WriteRefused("this changed while it was being mended: it was left as it is; run again")
        _replace(target, data, expected)
    except OSError as error:
        reason = error.strerror or str(error)
        raise WriteRefused(f"this could not be written and is as it was: {reason[:1].lower()}{reason[1:]}") from error


def write_new(path: str | Path, data: bytes) -> None:
    """Write a file that is ours, whole or not at all; what was there before is replaced. Pipes are written through."""
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        _put(Path(os.path.realpath(target)), data)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise VramwiseError(f"{path} cannot be written: {reason}") from error


def _put(target: Path, data: bytes) -> None:
    """Write a sibling, make it durable, rename it over the target."""
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _umask() -> int:
    """The mode bits that new files go without; there is no way to ask but to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _holds_something_else(target: Path, expected: bytes) -> bool:
    with target.open("rb") as file:
        return file.read(len(expected) + 1) != expected


def _replace(target: Path, data: bytes, expected: bytes) -> None:
    """Write a sibling, make it durable, rename it over the target."""
    before = target.stat()
    if not os.access(target, os.W_OK):  # a rename would succeed on a read-only file; its owner said no
        raise PermissionError(13, "permission denied: the file is read-only")
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            with contextlib.suppress(OSError, AttributeError):  # not the owner, or a system without owners
                os.chown(temporary, before.st_uid, before.st_gid)
            temporary.chmod(stat.S_IMODE(before.st_mode))
            os.fsync(file.fileno())
        if _holds_something_else(target, expected):
            raise WriteRefused("this changed while it was being mended: it was left as it is; run again")
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
