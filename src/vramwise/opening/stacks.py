"""Determines the versions that a run uses: options, lists beside its file, installed packages, a release's pins.

For each package, the first source that names it decides. Reads package metadata and never imports a package.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from vramwise.errors import VramwiseError
from vramwise.facts.torch import known_torch
from vramwise.limits import ceilings, read_file
from vramwise.opening.repository import Wanted, wanted_beside, wanted_by
from vramwise.trainers.names import suggest
from vramwise.trainers.releases import transformers_versions
from vramwise.types import Bounds, Origin, Release, Stack, admits, version_parts
from vramwise.variants.versions import NEWEST

# Packages whose version changes memory or a verdict.
PACKAGES = (
    *("torch", "transformers", "accelerate", "peft", "trl", "bitsandbytes", "liger-kernel", "deepspeed"),
    *("unsloth-zoo", "torchao"),
    # kernels for linear attention and state spaces, which transformers uses if they are installed
    *("fla-core", "mamba-ssm"),
    # only their presence matters, not their version
    *("flash-attn", "xformers"),
)
# Packages with names like theirs.
OTHERS = frozenset({"unsloth-zoo", "pytorch", "liger"})
# A name and a version, as packaging allows them, with a limit on their length.
_NAME, _VERSION = r"([A-Za-z0-9][\w.\-]{0,99})", r"([0-9][\w.+\-!]{0,59})"
_SAID = re.compile(rf"^\s*{_NAME}\s*==\s*v?{_VERSION}\s*$", re.ASCII)
# Where the sources of a package name its version, and how.
_NAMED_IN = ("__init__.py", "extras/env.py", "VERSION", "version.py")
_NAMES = re.compile(
    r"""^(?:_*version_*\s{0,9}[:=]?=?\s{0,9})?["']?([0-9][\w.]{0,59})""", re.ASCII | re.IGNORECASE | re.MULTILINE
)


def make_stack(
    trainer: str,
    releases: Mapping[str, Mapping[str, str]],
    *,
    said: Sequence[str] = (),
    torch: str | None = None,
    file: str | None = None,
    pinned: Mapping[str, str] | None = None,
    folder: Path | None = None,
    copy: Path | None = None,
    dated: Sequence[tuple[str, str, str]] = (),
    look_around: bool = True,
    site: Sequence[str] = (),
) -> Stack:
    """Return the versions for a run of `trainer`.

    `releases` maps the trainer's known releases, oldest first, to the versions that they install with. The surest
    source decides: `said`, the list `file` that the caller names, the versions that the run's own file installs
    (`pinned`), a `copy` of the trainer in its repository, the lists in or above its `folder`, what is installed, the
    release that the file was written for (`dated`: package, version, why), the newest. `site`: the folders of the
    trainer's own environment, if it has one; otherwise those of this Python are searched.
    """
    packages = (trainer, *PACKAGES)
    known = {"transformers": transformers_versions(), trainer: tuple(releases)}
    here: dict[str, Release] = {}
    if look_around:
        here = (
            _from_folders(packages, tuple(site), "installed in the trainer's environment")
            if site
            else _from_here(packages)
        )
    lists = [wanted_by(file, packages)] if file is not None else []
    if file is not None and not lists[0]:
        raise VramwiseError(f"--stack {file} pins no versions: expected lines like torch==2.13.0, or a uv.lock")
    lists.append({name: Wanted((("==", version),), "this file") for name, version in (pinned or {}).items()})
    lists += [wanted_beside(folder, packages)] if folder is not None else []
    found = _from_words(said, torch, packages)
    if copy is not None and trainer not in found:
        found[trainer] = _copied(trainer, copy, known[trainer])
    bounds: dict[str, Bounds] = {}
    for source in lists:
        for name, wanted in source.items():
            if name in packages and name not in found:
                bounds.setdefault(name, wanted.bounds)
                if release := _asked(name, wanted, known.get(name, ())):
                    found[name] = release
    elsewhere = trainer in found and (trainer not in here or here[trainer].version != found[trainer].version)
    absent = trainer not in found and trainer not in here
    found = {**here, **found} if not (elsewhere or absent) else found
    for name, version, why in dated:
        found.setdefault(name, Release(version=version, origin=Origin(kind="assumed", why=why)))
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
    found |= {name: _marked(found[name], known[name]) for name in found.keys() & known.keys() - {trainer}}
    return Stack(releases={name: found[name] for name in packages if name in found}, bounds=bounds)


def _asked(name: str, wanted: Wanted, known: Sequence[str]) -> Release | None:
    """Return the release that a list of versions names, or the newest known one that it admits; None: any new one."""
    place = Origin(kind="file", why=f"pinned in {wanted.file}")
    exact = [version for sign, version in wanted.bounds if sign in ("==", "===", "=") and not version.endswith("*")]
    if exact:
        return Release(version=exact[0], origin=place)
    shown = f"{name}{','.join(sign + version for sign, version in wanted.bounds)} in {wanted.file}"
    admitted = [one for one in known if admits(wanted.bounds, one)]
    if admitted and admitted[-1] != known[-1]:
        return Release(version=admitted[-1], origin=replace(place, why=f"the newest known one for {shown}"))
    if admitted or not known:
        return None
    nearest = max(version_parts(version) for _, version in wanted.bounds)
    return Release(version=".".join(map(str, nearest)), origin=replace(place, why=shown))


def _copied(trainer: str, place: Path, known: Sequence[str]) -> Release:
    """Return the release that a repository's own copy of a trainer comes closest to, from the version it names."""
    version = ""
    for name in _NAMED_IN:
        try:
            text = read_file(place / name, ceilings.LOCK_BYTES, "a package's version").decode("utf-8", "replace")
        except VramwiseError:
            continue
        if found := _NAMES.search(text):
            version = found[1]
            break
    origin = Origin(kind="file", why=f"the repository's own copy, {place.parent.name}/{place.name}")
    wanted = Release(version=version or known[-1], origin=origin)
    return replace(_known_release(trainer, wanted, known), said=version, origin=origin, age="own")


def trainers_packages() -> set[str]:
    """Return the package of every trainer: a version of another one's has no effect, but is no mistake."""
    from vramwise.trainers.registry import all_identities  # late: only for names that resemble another

    return {one.package for one in all_identities()}


def said_release(words: str) -> tuple[str, str]:
    """Return ("torch", "2.13.0") for `torch==2.13.0`; raises VramwiseError for any other form."""
    match = _SAID.match(words)
    if match is None:
        raise VramwiseError(f"'{words[:60]}' is not a version: write it like torch==2.13.0")
    return _normal(match[1]), match[2]


def _from_words(said: Sequence[str], torch: str | None, packages: Sequence[str]) -> dict[str, Release]:
    found: dict[str, Release] = {}
    for words in said:
        name, version = said_release(words)
        if name not in packages and (near := suggest(name, packages)) and name not in {*OTHERS, *trainers_packages()}:
            raise VramwiseError(f"--with {words}: the version of '{name}' has no effect: did you mean {near[0]}?")
        if name in found and found[name].version != version:
            raise VramwiseError(f"--with sets {name} twice: {found[name].version} and {version}")
        found[name] = Release(version=version, origin=Origin(kind="option", why=f"--with {name}=={version}"))
    if torch is not None:
        if "torch" in found:
            raise VramwiseError(f"--torch {torch} and --with torch=={found['torch'].version}: use only one of them")
        found["torch"] = Release(version=torch, origin=Origin(kind="option", why="--torch"))
    return found


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
        return Release(version=newest, origin=Origin(kind="assumed", why=NEWEST))
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


def _marked(found: Release, known: Sequence[str]) -> Release:
    """Return a release with its own version, marked as unknown if it is outside the known range, and not assumed."""
    if found.origin.kind == "assumed":
        return found
    return replace(found, age=_age(found.parts[:2], version_parts(known[0])[:2], version_parts(known[-1])[:2]))


def _age(
    version: tuple[int, ...], oldest: tuple[int, ...], newest: tuple[int, ...]
) -> Literal["known", "older", "newer"]:
    if not version or oldest <= version <= newest:
        return "known"
    return "older" if version < oldest else "newer"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
