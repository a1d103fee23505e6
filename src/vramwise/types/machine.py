"""The machine of a run: card, installed versions, allocator variables and launcher."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from vramwise.types.document import Bounds, Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """A card, with the properties that decide memory and dtypes. `capability` is CUDA's (major, minor); None on AMD."""

    name: str
    vendor: Literal["nvidia", "amd"]
    memory_bytes: int
    capability: tuple[int, int] | None
    bf16: bool
    fp8: bool
    known: bool = True  # False for a bare size such as "24GB": capability-dependent rules are skipped
    multiprocessors: int | None = None  # compute units on AMD; None: not known
    taken_for: str = ""  # a sentence naming the assumed card if the name fits several; "" otherwise


# The most digits that a part of a version has.
_LONGEST_NUMBER = 18


def version_parts(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (2, 11, 0) of `2.11.0+cu130`."""
    numbers: list[int] = []
    for part in version.split("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits[:_LONGEST_NUMBER]))
        if digits != part:
            break
    return tuple(numbers)


def admits(bounds: Bounds, version: str) -> bool:
    """Return whether a version meets every bound of a requirement."""
    return all(_meets(sign, bound, version_parts(version)) for sign, bound in bounds)


def _meets(sign: str, bound: str, parts: tuple[int, ...]) -> bool:
    limit = version_parts(bound)
    wide = (*parts, *[0] * (len(limit) - len(parts)))  # 1.0 is 1.0.0
    limit_wide = (*limit, *[0] * (len(wide) - len(limit)))
    if sign == "~=":
        return limit_wide <= wide < _next(limit[:-1])
    if sign == "^":
        return limit_wide <= wide < _next(limit[: next((at for at, one in enumerate(limit, 1) if one), 1)])
    if sign in ("==", "===", "=", "!="):
        same = wide[: len(limit)] == limit if bound.endswith(".*") else wide == limit_wide
        return same is (sign != "!=")
    compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
    return sign not in compare or bool(compare[sign](wide, limit_wide))


def _next(parts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the first version after all that begin with these parts."""
    return (*parts[:-1], parts[-1] + 1) if parts else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The version of a package, and where that version comes from.

    `said`: the version that the run really has, if `version` is the nearest known one instead; "" otherwise. `age`:
    whether the run's version is older or newer than every known one, or its repository's own copy.
    """

    version: str
    origin: Origin
    said: str = ""
    age: Literal["known", "older", "newer", "own"] = "known"

    @property
    def parts(self) -> tuple[int, ...]:
        """The leading numbers: (2, 11, 0) of `2.11.0+cu130`."""
        return version_parts(self.version)

    @property
    def known(self) -> bool:
        """Whether the run's version is a release between the oldest and the newest known one."""
        return self.age == "known"

    @property
    def meant(self) -> str:
        """The version that the run really has."""
        return self.said or self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The package versions of a run (trainer, torch, transformers, peft…) by name, each with its origin.

    `bounds`: what the file's repository asks for, by package.
    """

    releases: Mapping[str, Release]
    bounds: Mapping[str, Bounds] = field(default_factory=dict)

    def parts(self, package: str) -> tuple[int, ...]:
        """Return a package's version as numbers; empty if it is not known."""
        release = self.releases.get(package)
        return () if release is None else release.parts

    def older_than(self, package: str, version: str) -> bool:
        """Return whether the run uses a release of a package before this one."""
        return () < self.really(package) < version_parts(version)

    def at(self, package: str, version: str, installs: Mapping[str, str] | None = None) -> Stack:
        """Return the stack with a known release of a package, and what that installs with if no version is given."""
        origin = Origin(kind="assumed", why=f"what {package} {version} installs with")
        assumed = {name for name, one in self.releases.items() if one.origin.kind == "assumed"}
        open_ = assumed | ((installs or {}).keys() - self.releases.keys())
        changed = {name: Release(version=one, origin=origin) for name, one in (installs or {}).items() if name in open_}
        before = self.releases.get(package, Release(version=version, origin=origin))
        changed[package] = replace(before, version=version, said="", age="known")
        return replace(self, releases={**self.releases, **changed})

    @property
    def unknown(self) -> Mapping[str, Release]:
        """The packages whose version is newer or older than every known one, or of its own."""
        return {name: release for name, release in self.releases.items() if not release.known}

    def really(self, package: str) -> tuple[int, ...]:
        """Return the version that the run really has as numbers, known or not; empty if nobody knows it."""
        release = self.releases.get(package)
        return () if release is None else version_parts(release.meant)

    @property
    def torch(self) -> tuple[int, int]:
        """torch's major and minor version, which select the allocator's behaviour."""
        parts = self.parts("torch")
        return (parts[0], parts[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The machine that the run is meant for: cards, installed versions, allocator variables and launcher."""

    gpu: GpuSpec | None
    gpus: int
    stack: Stack
    # The PYTORCH_*ALLOC_CONF variables that the training process inherits (absent = unset; "" = set and empty).
    alloc_env: Mapping[str, str]
    # Settings forced by --alloc-conf, which override the trainer and the environment. None: not forced.
    alloc_conf: str | None = None
    # "torchrun": the trainer's own command starts it even on one card (LLaMA-Factory's FORCE_TORCHRUN).
    launcher: Literal["cli", "torchrun", "module"] = "cli"
    # The options of `accelerate launch`: `config_file`, `use_fsdp`, `fsdp_version`… Empty: another launcher.
    accelerate: Mapping[str, str] = field(default_factory=dict)

    @property
    def torch(self) -> tuple[int, int]:
        """torch's version."""
        return self.stack.torch
