"""Which versions of packages the repository of a file asks for: its requirements, pyproject.toml and lock files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, read_file
from vramwise.types import Bounds

_FILES = re.compile(
    r"(?:requirements[\w.-]*\.txt|pyproject\.toml|setup\.(?:py|cfg)|environment\.ya?ml|uv\.lock|poetry\.lock)"
)
_BOUND = re.compile(r"([<>=!~^]{0,3}) *v?([0-9][\w.*]{0,59})", re.ASCII)
_Found = Iterator[tuple[str, tuple[tuple[str, str], ...]]]
# A file further below the root of its repository does not use the repository's versions.
_MOST_FOLDERS = 6
_MOST_FILES = 20


def asked_by_repository(path: str, packages: Iterable[str]) -> Bounds:
    """Return package → (sign, version) pairs, from the closest folder at or above a file that names the package."""
    asked, locked = _patterns("|".join(map(re.escape, sorted(packages))))
    folder = Path(path).resolve().parent
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for parent in (folder, *folder.parents)[:_MOST_FOLDERS]:
        found = {**_asked_in(parent, asked, locked), **found}
        if (parent / ".git").exists():
            break
    return found


@lru_cache(maxsize=16)
def _patterns(packages: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of requirements, `trl<0.13` or `trl = "^0.12"`, and of entries of a lock file."""
    one = r"[<>=!~]{1,3} {0,9}v?[0-9][\w.*+!-]{0,59}"  # bounded, because patterns of unlimited blanks are slow
    bound = rf"{one}(?: {{0,9}}, {{0,9}}{one}){{0,9}}"
    extras = r"(?:\[[\w, -]{0,99}\])?"
    asked = rf"""(?<![\w./@-])({packages}){extras} {{0,9}}(?:\(? {{0,9}}({bound})|= {{0,9}}"([^"]{{1,99}})")"""
    locked = rf'^name = "({packages})"\r?\nversion = "([0-9][\w.+!-]{{0,59}})"'
    return re.compile(asked, re.ASCII | re.IGNORECASE), re.compile(locked, re.ASCII | re.MULTILINE)


def _asked_in(folder: Path, asked: re.Pattern[str], locked: re.Pattern[str]) -> Bounds:
    try:
        names = sorted(one.name for one in folder.iterdir() if _FILES.fullmatch(one.name))[:_MOST_FILES]
    except OSError:
        return {}
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for name in names:
        try:
            text = read_file(folder / name, ceilings.LOCK_BYTES, "a list of versions").decode("utf-8", "replace")
        except VramwiseError:
            continue
        for package, bounds in _locked_by(text, locked) if name.endswith(".lock") else _asked_by(text, asked):
            found[package] = (*found.get(package, ()), *bounds)
    return found


def _locked_by(text: str, locked: re.Pattern[str]) -> _Found:
    return ((one[1], (("==", one[2]),)) for one in locked.finditer(text))


def _asked_by(text: str, asked: re.Pattern[str]) -> _Found:
    for line in text.splitlines():
        for one in asked.finditer(line.partition("#")[0]):
            bounds = _BOUND.findall(one[2] or one[3])
            yield one[1].lower(), tuple((sign or "==", version) for sign, version in bounds)
