"""What a card's kernels ask of memory: how many blocks run at once, which workspaces the libraries take.

How many multiprocessors a card has is its own fact; where that is not known, an H200's count is taken, and it is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vramwise.types import GpuSpec

_H200_MULTIPROCESSORS = 132


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The figures that decide buffer sizes."""

    capability: tuple[int, int] = (9, 0)
    multiprocessors: int = _H200_MULTIPROCESSORS
    threads_each: int = 2048
    matmul_workspace_bytes: int = 32 * 1024 * 1024
    # the kernels that `scaled_dot_product_attention` tries, in its order; each takes only some inputs
    attention: tuple[str, ...] = ("cudnn", "flash", "efficient", "math")
    memory_bytes: int | None = None  # of the whole card, where one is named
    capacity_bytes: int | None = None  # what the allocator may reserve of it

    @property
    def large_shared_memory(self) -> bool:
        """More than 160 KiB of shared memory a block: datacenter cards (A100 on), not those for desktops."""
        return self.capability in ((8, 0), (8, 7), (9, 0), (10, 0), (10, 3))


def hardware_of(gpu: GpuSpec | None, torch: tuple[int, int]) -> Hardware:
    """Return the figures of a card; without one, and where they are not known, those of an H200."""
    if gpu is None:
        return Hardware()
    count = gpu.multiprocessors or _H200_MULTIPROCESSORS
    if gpu.capability is None:
        return Hardware(multiprocessors=count, memory_bytes=gpu.memory_bytes)
    major, minor = gpu.capability
    threads = (
        2048
        if (major, minor) in {(7, 0), (8, 0), (9, 0), (10, 0), (10, 3)} or major < 7
        else 1024
        if major == 7
        else 1536
    )
    large = major == 9 or (major >= 10 and torch >= (2, 10))
    return Hardware(
        capability=gpu.capability,
        multiprocessors=count,
        threads_each=threads,
        matmul_workspace_bytes=32 * 1024 * 1024 if large else 8_519_680,
        attention=_attention(major, torch),
        memory_bytes=gpu.memory_bytes,
    )


def taken_for_granted(gpu: GpuSpec | None) -> Iterator[str]:
    """Yield what `hardware_of` does not know of this card, in sentences."""
    if gpu is not None and gpu.multiprocessors is None:
        yield (
            f"{gpu.name} is assumed to have as many multiprocessors as an H200 ({_H200_MULTIPROCESSORS}): its number "
            "is unknown"
        )


def _attention(major: int, torch: tuple[int, int]) -> tuple[str, ...]:
    """cuDNN's kernel comes first on datacenter cards from Hopper on; flash attention needs Ampere."""
    kernels: tuple[str, ...] = ("efficient", "math")
    if major >= 8:
        kernels = ("flash", *kernels)
    if major in (9, 10) and torch >= (2, 9):
        kernels = ("cudnn", *kernels)
    return kernels
