"""From a path and options to a resolved run: the part that every verb about a config shares. Imports no rules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vramwise.allocator.settings import parse_settings
from vramwise.documents.document import parse_document
from vramwise.errors import ConfigError, VramwiseError
from vramwise.files import read_config_bytes
from vramwise.project import ProjectSettings, project_settings
from vramwise.sidecar import read_deepspeed_file
from vramwise.targets import make_target
from vramwise.trainers.axolotl.resolve import resolve_axolotl
from vramwise.trainers.axolotl.values import axolotl_config
from vramwise.types import Document, RunSpec, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the caller asks for; None = not said, then the project's pyproject.toml decides, then this machine."""

    gpu: str | None = None
    gpus: int | None = None
    torch: str | None = None
    alloc_conf: str | None = None
    launcher: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    min_severity: str | None = None
    # Predict the run and judge what it needs; None: where one file is checked, its model is known and a card is named.
    predict: bool | None = None


def read_run(path: str, options: Options) -> tuple[Document, RunSpec]:
    """One config, read and resolved; a ConfigError where it cannot be used."""
    document = read_document(path)
    return document, resolve(document, target_for(path, options))


def read_document(path: str) -> Document:
    """One config, read; a ConfigError that names the file where it cannot be."""
    try:
        return parse_document(path, read_config_bytes(path))
    except ConfigError as error:
        error.path = path
        raise


def resolve(document: Document, target: Target) -> RunSpec:
    """What this config will really do on this target."""
    config = axolotl_config(document)
    return resolve_axolotl(config, target, read_deepspeed_file(config))


def target_for(path: str, options: Options) -> Target:
    """The machine meant for a file: the options, the closest pyproject.toml, this machine."""
    return _target(options, project_for(path))


def project_for(path: str) -> ProjectSettings:
    """The settings of the project a file belongs to."""
    return _project("." if path == "-" else str(Path(path).parent))


@lru_cache(maxsize=256)
def _project(folder: str) -> ProjectSettings:
    return project_settings(Path(folder))


@lru_cache(maxsize=64)
def _target(options: Options, project: ProjectSettings) -> Target:
    alloc_conf = options.alloc_conf if options.alloc_conf is not None else project.alloc_conf
    try:
        target = make_target(
            gpu=options.gpu or project.gpu,
            gpus=options.gpus or project.gpus,
            torch=options.torch or project.torch,
            alloc_conf=alloc_conf,
            launcher=options.launcher or project.launcher or "cli",
        )
        if alloc_conf:
            parse_settings(alloc_conf, target.torch)  # a typo is an error here, as it would be in torch
    except VramwiseError as error:
        raise VramwiseError(f"{error} (see also {project.path})" if project.path else str(error)) from error
    return target
