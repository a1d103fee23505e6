"""Determines the versions that a run uses: options, lists beside its file, installed packages, a release's pins.

For each package, the first source that names it decides. Reads package metadata and never imports a package.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from vramwise.errors import VramwiseError
from vramwise.facts.torch import known_torch
from vramwise.limits import ceilings, read_file
from vramwise.types import Origin, Release, Stack, version_parts

# Packages whose version changes memory or a verdict.
PACKAGES = (
    *("torch", "transformers", "accelerate", "peft", "trl", "bitsandbytes", "liger-kernel", "deepspeed"),
    "unsloth-zoo",
    # kernels for linear attention and state spaces, which transformers uses if they are installed
    *("fla-core", "mamba-ssm"),
    # only their presence matters, not their version
    *("flash-attn", "xformers"),
)
# The oldest and newest releases whose behaviour is known, of packages besides the trainer and torch. Their own version
# stays in force, since some settings follow from it.
_RANGES = {"transformers": ((4, 31), (5, 23))}
# Files beside a config that pin versions, the surest first.
_BESIDE = ("uv.lock", "requirements.txt")
# A name and a version, as packaging allows them, with a limit on their length.
_NAME, _VERSION = r"([A-Za-z0-9][\w.\-]{0,99})", r"([0-9][\w.+\-!]{0,59})"
_SAID = re.compile(rf"^\s*{_NAME}\s*==\s*v?{_VERSION}\s*$", re.ASCII)
_PINNED = re.compile(rf"^\s*{_NAME}(?:\[[^\]]*\])?\s*={{2,3}}\s*{_VERSION}(?![\w.+\-!])", re.ASCII)
# uv always writes these three lines in this order. Parsing a large lock file as TOML takes seconds.
_LOCKED = re.compile(rf'^\[\[package\]\]\r?\nname = "{_NAME}"\r?\nversion = "{_VERSION}"', re.ASCII | re.MULTILINE)


def make_stack(
    trainer: str,
    releases: Mapping[str, Mapping[str, str]],
    *,
    said: Sequence[str] = (),
    torch: str | None = None,
    file: str | None = None,
    beside: Sequence[str] = (),
    look_around: bool = True,
    site: Sequence[str] = (),
) -> Stack:
    """Return the versions for a run of `trainer`.

    `releases` maps the trainer's known releases, oldest first, to the versions that they install with. `file`: a list
    of versions that the caller names; `beside`: those that lie beside the run's file. `site`: the folders of the
    trainer's own environment, if it has one; otherwise those of this Python are searched.
    """
    packages = (trainer, *PACKAGES)
    found: dict[str, Release] = {}
    here: dict[str, Release] = {}
    if look_around:
        here = (
            _from_folders(packages, tuple(site), "installed in the trainer's environment")
            if site
            else _from_here(packages)
        )
    for source in (_from_words(said, torch), _from_file(file), *map(_from_beside, beside)):
        for name, release in source.items():
            if name in packages:
                found.setdefault(name, release)
    elsewhere = trainer in found and (trainer not in here or here[trainer].version != found[trainer].version)
    absent = trainer not in found and trainer not in here
    found = {**here, **found} if not (elsewhere or absent) else found
    found[trainer] = _known_release(trainer, found.get(trainer), list(releases))
    pins = releases[found[trainer].version] if releases else {}
    if elsewhere or absent:
        # This environment is not the trainer's: installed packages count only if the trainer's release names no
        # version. If torch is installed here but the trainer is not, torch is kept.
        kept = {name: release for name, release in here.items() if name not in pins or (absent and name == "torch")}
        found = {**kept, **found}
    for name, version in pins.items():
        why = f"what {trainer} {found[trainer].version} installs with"
        found.setdefault(name, Release(version=version, origin=Origin(kind="assumed", why=why)))
    found["torch"] = known_torch(found.get("torch"))
    found |= {name: _marked(name, found[name]) for name in _RANGES if name in found and name != trainer}
    return Stack(releases={name: found[name] for name in packages if name in found})


def said_release(words: str) -> tuple[str, str]:
    """Return ("torch", "2.13.0") for `torch==2.13.0`; raises VramwiseError for any other form."""
    match = _SAID.match(words)
    if match is None:
        raise VramwiseError(f"'{words[:60]}' is not a version: write it like torch==2.13.0")
    return _normal(match[1]), match[2]


def _from_words(said: Sequence[str], torch: str | None) -> dict[str, Release]:
    found: dict[str, Release] = {}
    for words in said:
        name, version = said_release(words)
        if name in found and found[name].version != version:
            raise VramwiseError(f"--with sets {name} twice: {found[name].version} and {version}")
        found[name] = Release(version=version, origin=Origin(kind="option", why=f"--with {name}=={version}"))
    if torch is not None:
        if "torch" in found:
            raise VramwiseError(f"--torch {torch} and --with torch=={found['torch'].version}: use only one of them")
        found["torch"] = Release(version=torch, origin=Origin(kind="option", why="--torch"))
    return found


def _from_file(name: str | None) -> dict[str, Release]:
    if name is None:
        return {}
    try:
        data = read_file(name, ceilings.LOCK_BYTES, "a list of versions")
    except VramwiseError as error:
        raise VramwiseError(f"--stack {error}") from error
    origin = Origin(kind="file", why=f"pinned in {name}")
    versions = dict(_pins(data.decode("utf-8", "replace")))
    if not versions:
        raise VramwiseError(f"--stack {name} pins no versions: expected lines like torch==2.13.0, or a uv.lock")
    return {package: Release(version=version, origin=origin) for package, version in versions.items()}


def lists_beside(folder: Path) -> tuple[str, ...]:
    """Return the lock and the list of versions in the closest folder that has one, up to the root of the repository."""
    for parent in (folder, *folder.parents):
        found = tuple([str(parent / name) for name in _BESIDE if (parent / name).is_file()])
        if found or (parent / ".git").exists():
            return found
    return ()


def _from_beside(name: str) -> dict[str, Release]:
    """Return what a file pins that the caller did not name: it may pin nothing, and need not be readable."""
    try:
        data = read_file(name, ceilings.LOCK_BYTES, "a list of versions")
    except VramwiseError:
        return {}
    origin = Origin(kind="file", why=f"pinned in {name}")
    return {
        package: Release(version=version, origin=origin) for package, version in _pins(data.decode("utf-8", "replace"))
    }


def _pins(text: str) -> Iterator[tuple[str, str]]:
    if text.lstrip().startswith("version = ") and "[[package]]" in text:
        yield from ((_normal(match[1]), match[2]) for match in _LOCKED.finditer(text))
        return
    for line in text.splitlines():
        match = _PINNED.match(line)
        if match:
            yield _normal(match[1]), match[2]


def _from_here(packages: tuple[str, ...]) -> dict[str, Release]:
    return _from_folders(packages, tuple(sys.path), "installed here")


@cache
def _from_folders(packages: tuple[str, ...], folders: tuple[str, ...], why: str) -> dict[str, Release]:
    """Read versions from the names of metadata folders (`torch-2.11.0+cu130.dist-info`).

    importlib.metadata would cost 50 ms.
    """
    found: dict[str, Release] = {}
    for folder in folders:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - only names are needed, and this is the fastest way
        except OSError:  # zip files and missing folders
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                package, _, version = name.rsplit(".", 1)[0].partition("-")
                version = version.split("-py")[0]
                if _normal(package) in packages and version[:1].isdigit():
                    release = Release(version=version, origin=Origin(kind="environment", why=why))
                    found.setdefault(_normal(package), release)
    return found


def _known_release(trainer: str, wanted: Release | None, known: Sequence[str]) -> Release:
    """Return the known release that is meant; for an unknown version, the newest before it, else the oldest."""
    if wanted is None:
        newest = known[-1] if known else "0"
        return Release(version=newest, origin=Origin(kind="assumed", why="the newest known release"))
    if wanted.version in known:
        return wanted
    meant = [version for version in known if version_parts(version)[: len(wanted.parts)] == wanted.parts]
    if meant and wanted.version.replace(".", "").isdigit():  # 0.21 means 0.21.0
        return replace(wanted, version=meant[-1])
    earlier = [version for version in known if version_parts(version) <= wanted.parts]
    nearest = earlier[-1] if earlier else known[0]
    why = f"{wanted.origin.why}, which is unknown: treated as {trainer} {nearest}"
    origin = Origin(kind=wanted.origin.kind, why=why)
    age = _age(wanted.parts, version_parts(known[0]), version_parts(known[-1]))
    return Release(version=nearest, origin=origin, said=wanted.version, age=age)


def _marked(package: str, found: Release) -> Release:
    """Return a release, marked as unknown if it is outside the known range."""
    return replace(found, age=_age(found.parts[:2], *_RANGES[package]))


def _age(
    version: tuple[int, ...], oldest: tuple[int, ...], newest: tuple[int, ...]
) -> Literal["known", "older", "newer"]:
    if not version or oldest <= version <= newest:
        return "known"
    return "older" if version < oldest else "newer"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
