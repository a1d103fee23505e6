"""The command line that fits a config, for messages that name it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from vramwise.errors import VramwiseError
from vramwise.facts.gpus import find_gpu
from vramwise.opening.subject import Subject
from vramwise.types import GpuSpec
from vramwise.units import size_word


def fit_command(subject: Subject, limit_bytes: int | None = None, allow: Sequence[str] = ()) -> str:
    """Return the command that finds the fastest variant that fits and shows it as a diff."""
    path = subject.document.path
    words = ["vramwise", "fit", path if path != "<text>" else "CONFIG"]
    if subject.target.gpu is not None:
        words += ["--gpu", _called(subject.target.gpu)]
    if subject.target.gpus > 1:
        words += ["--gpus", str(subject.target.gpus)]
    if subject.data.named is not None:
        words += ["--data", subject.data.named]
    if limit_bytes is not None:
        words += ["--memory-limit", size_word(limit_bytes)]
    for package, release in subject.target.stack.releases.items():
        if release.origin.kind == "option":
            words += ["--with", f"{package}=={release.meant}"]
    for word in allow:
        words += ["--allow", word]
    return shlex.join(words)


def _called(gpu: GpuSpec) -> str:
    """Return a name for the card that --gpu accepts: its own name, else its size."""
    name = gpu.name.lower().replace(" ", "-")
    try:
        if find_gpu(name).memory_bytes == gpu.memory_bytes:
            return name
    except VramwiseError:
        pass
    return size_word(gpu.memory_bytes)
