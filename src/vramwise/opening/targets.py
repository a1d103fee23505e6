"""Builds the Target, the machine of a run: card, number of cards, versions and allocator variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal, cast

from vramwise.allocator.settings import parse_settings
from vramwise.allocator.variables import VARIABLES
from vramwise.errors import VramwiseError
from vramwise.facts.gpus import find_gpus
from vramwise.facts.nvml import local_gpu
from vramwise.opening.options import Options
from vramwise.opening.project import ProjectSettings, project_settings
from vramwise.opening.repository import own_copy
from vramwise.opening.sources import TEXT
from vramwise.opening.stacks import make_stack
from vramwise.trainers.registry import identity_named
from vramwise.types import GpuSpec, Stack, Target

# Packages with their versions, and with what the version follows from.
_Versions = tuple[tuple[str, str], ...]
_Dated = tuple[tuple[str, str, str], ...]
# The largest number of ranks that torch supports.
_MOST_GPUS = 2**18


def make_target(
    *,
    stack: Stack,
    gpu: str | None = None,
    gpus: int | None = None,
    alloc_conf: str | None = None,
    launcher: str = "cli",
    accelerate: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    look_around: bool = True,
) -> Target:
    """Build the target. Without `gpu`, this machine's card is used, unless `look_around` is off.

    Raises VramwiseError for an invalid number of GPUs, launcher or card.
    """
    if gpus is not None and gpus < 1:
        raise VramwiseError(f"--gpus {gpus}: must be at least 1")
    if gpus is not None and gpus > _MOST_GPUS:
        raise VramwiseError(f"--gpus: at most {_MOST_GPUS:,} are supported")
    if launcher not in ("cli", "torchrun", "module"):
        raise VramwiseError(f"launcher '{launcher}' is neither cli nor module")
    card, count = _card(gpu, gpus, look_around)
    env = os.environ if env is None else env
    return Target(
        gpu=card,
        gpus=gpus or count,
        stack=stack,
        alloc_env={name: env[name] for name in VARIABLES if name in env},
        alloc_conf=alloc_conf,
        launcher=cast(Literal["cli", "torchrun", "module"], launcher),
        accelerate=dict(accelerate or {}),
    )


def _card(name: str | None, gpus: int | None, look_around: bool) -> tuple[GpuSpec | None, int]:
    if name is not None:
        count, card = find_gpus(name)
        if count and gpus and count != gpus:
            raise VramwiseError(f"--gpu {name} means {count} cards, but --gpus is {gpus}: use only one of them")
        return card, count or 1
    if look_around:
        found = local_gpu()
        if found is not None:
            return found
    return None, 1


def target_for(path: str, options: Options, trainer: str, pinned: _Versions = (), dated: _Dated = ()) -> Target:
    """Return the target for a file of this trainer, from the options, the closest pyproject.toml and this machine.

    `pinned`: the versions that the file itself installs; `dated`: those that it was written for.
    """
    path = options.home if path == TEXT and options.home else path
    project = project_for(path, options)
    # Neither lists of versions nor the trainer's own copy count if its environment is known.
    alone = options.text_alone or bool(options.site) or path in ("-", TEXT)
    folder = None if alone else Path(path).absolute().parent
    # A version file may change while the program runs, so it is read again each time.
    remembered = options.stack is None and project.stack is None and folder is None
    return (_target if remembered else _target.__wrapped__)(options, project, trainer, folder, pinned, dated)


def project_for(path: str, options: Options) -> ProjectSettings:
    """Return the settings of the project that a file belongs to."""
    if options.text_alone:
        return ProjectSettings()
    return _project("." if path in ("-", TEXT) else str(Path(path).parent))


@lru_cache(maxsize=256)
def _project(folder: str) -> ProjectSettings:
    return project_settings(Path(folder))


@lru_cache(maxsize=64)
def _target(
    options: Options,
    project: ProjectSettings,
    name: str,
    folder: Path | None,
    pinned: _Versions,
    dated: _Dated,
) -> Target:
    trainer = identity_named(name)
    alloc_conf = options.alloc_conf if options.alloc_conf is not None else project.alloc_conf
    try:
        # A version on the command line overrides the project's, package by package.
        said = {words.partition("==")[0].strip(): words for words in (*project.versions, *options.versions)}
        torch = options.torch or (None if "torch" in said else project.torch)
        stack = make_stack(
            trainer.package,
            trainer.releases(),
            said=tuple(said.values()),
            torch=torch,
            file=options.stack or project.stack,
            pinned=dict(pinned),
            folder=folder,
            copy=None if folder is None else own_copy(folder, (trainer.package, *trainer.other_names)),
            dated=dated,
            site=options.site,
        )
        target = make_target(
            gpu=options.gpu or project.gpu,
            gpus=options.gpus or project.gpus,
            stack=stack,
            alloc_conf=alloc_conf,
            launcher=options.launcher or project.launcher or "cli",
            accelerate=dict(options.accelerate),
        )
        if alloc_conf:
            parse_settings(alloc_conf, target.torch)  # a typo is an error here, as in torch
    except VramwiseError as error:
        raise VramwiseError(f"{error} (see also {project.path})" if project.path else str(error)) from error
    return target
