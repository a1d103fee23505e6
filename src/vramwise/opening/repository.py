"""Which versions of packages the repository of a file asks for: requirements, pyproject.toml, lock files, installers.

Also whether it has a copy of the trainer of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, read_file
from vramwise.types import Bounds

_FILES = re.compile(
    r"(?:requirements[\w.-]*\.txt|pyproject\.toml|setup\.(?:py|cfg)|environment[\w.-]*\.ya?ml|(?:uv|poetry)\.lock)"
)
# Files in which only lines that install packages count.
_INSTALLERS = re.compile(r"(?:[\w.-]+\.sh|Dockerfile[\w.-]*)")
_INSTALL = re.compile(r"\bpip3?\s+install\b|\buv\s+(?:pip\s+install|add)\b")
_BOUND = re.compile(r"([<>=!~^]{0,3}) *v?([0-9][\w.*+!-]{0,59})", re.ASCII)
_Found = Iterator[tuple[str, Bounds]]
# A file further below the root of its repository does not use the repository's versions.
_MOST_FOLDERS = 6
_MOST_FILES = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a file asks for of a package, surest first; an exact version decides alone. `file`: which says so."""

    bounds: Bounds
    file: str


def wanted_beside(folder: Path, packages: Iterable[str]) -> dict[str, Wanted]:
    """Return what is asked of each package by the closest folder, at or above this one, that names it."""
    patterns = _patterns("|".join(sorted(re.escape(name).replace(r"\-", "[-_.]") for name in packages)))
    found: dict[str, Wanted] = {}
    for parent in _above(folder):
        found = {**_wanted_in(parent, patterns), **found}
    return found


def wanted_by(name: str, packages: Iterable[str]) -> dict[str, Wanted]:
    """Return what one list of versions asks for; raises VramwiseError if it cannot be read."""
    patterns = _patterns("|".join(sorted(re.escape(one).replace(r"\-", "[-_.]") for one in packages)))
    return _wanted(name, read_file(name, ceilings.LOCK_BYTES, "a list of versions"), patterns)


def own_copy(folder: Path, names: Iterable[str]) -> Path | None:
    """Return the copy of a package, by its names, that the file's repository brings: it may differ from any release."""
    for parent in _above(folder):
        for name in names:
            for place in (parent / "src" / name, parent / name):
                if (place / "__init__.py").is_file():
                    return place
    return None


def _above(folder: Path) -> Iterator[Path]:
    """Yield the folder and those above it, to the root of its repository."""
    folder = folder.resolve()
    for parent in (folder, *folder.parents)[:_MOST_FOLDERS]:
        yield parent
        if (parent / ".git").exists():
            return


@lru_cache(maxsize=16)
def _patterns(packages: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of requirements, `trl<0.13` or `trl = "^0.12"`, and of entries of a lock file."""
    one = r"[<>=!~]{1,3} {0,9}v?[0-9][\w.*+!-]{0,59}"  # bounded, because patterns of unlimited blanks are slow
    bound = rf"{one}(?: {{0,9}}, {{0,9}}{one}){{0,9}}"
    extras = r"(?:\[[\w, -]{0,99}\])?"
    asked = rf"""(?<![\w./@-])({packages}){extras} {{0,9}}(?:\(? {{0,9}}({bound})|= {{0,9}}"([^"]{{1,99}})")"""
    locked = rf'^name = "({packages})"\r?\nversion = "([0-9][\w.+!-]{{0,59}})"'
    return re.compile(asked, re.ASCII | re.IGNORECASE), re.compile(locked, re.ASCII | re.MULTILINE)


def _wanted_in(folder: Path, patterns: tuple[re.Pattern[str], re.Pattern[str]]) -> dict[str, Wanted]:
    try:
        names = [one.name for one in folder.iterdir() if _FILES.fullmatch(one.name) or _INSTALLERS.fullmatch(one.name)]
    except OSError:
        return {}
    found: dict[str, Wanted] = {}
    for name in sorted(names, key=lambda one: (not one.endswith(".lock"), not _FILES.fullmatch(one), one))[
        :_MOST_FILES
    ]:
        try:
            data = read_file(folder / name, ceilings.LOCK_BYTES, "a list of versions")
        except VramwiseError:
            continue
        for package, wanted in _wanted(str(folder / name), data, patterns).items():
            before = found.get(package)
            if before is None or (_loose(before) and not _loose(wanted)):
                found[package] = wanted
    return found


def _loose(wanted: Wanted) -> bool:
    """Return whether any newer release will do."""
    return all(sign in (">", ">=", "!=") for sign, _ in wanted.bounds)


def _wanted(name: str, data: bytes, patterns: tuple[re.Pattern[str], re.Pattern[str]]) -> dict[str, Wanted]:
    text, (asked, locked) = data.decode("utf-8", "replace"), patterns
    found: dict[str, Bounds] = {}
    installer = _FILES.fullmatch(Path(name).name) is None and _INSTALLERS.fullmatch(Path(name).name) is not None
    pairs = _locked_by(text, locked) if "[[package]]" in text else _asked_by(text, asked, installer=installer)
    for package, bounds in pairs:
        package = re.sub(r"[-_.]+", "-", package).lower()
        found[package] = (*found.get(package, ()), *bounds)
    return {package: Wanted(bounds, name) for package, bounds in found.items()}


def _locked_by(text: str, locked: re.Pattern[str]) -> _Found:
    return ((one[1], (("==", one[2]),)) for one in locked.finditer(text))


def _asked_by(text: str, asked: re.Pattern[str], *, installer: bool) -> _Found:
    for line in text.splitlines():
        if not installer or _INSTALL.search(line):
            for one in asked.finditer(line.partition("#")[0]):
                bounds = _BOUND.findall(one[2] or one[3])
                yield one[1], tuple((sign or "==", version) for sign, version in bounds)
