"""What a card's kernels ask of memory: how many blocks run at once, which workspaces the libraries take.

Multiprocessor counts are NVIDIA's published ones; a card that is not listed is taken to have as many as an H200.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.types import GpuSpec

# name fragments, most specific first
_MULTIPROCESSORS = {
    "h200": 132, "h100 pcie": 114, "h100": 132, "gh200": 132, "h800": 132, "h20": 78,
    "b300": 148, "gb200": 148, "b200": 148,
    "a100": 108, "a800": 108, "a30": 56, "a40": 84, "a10g": 80, "a10": 72, "a16": 10,
    "a6000": 84, "a5000": 64, "a4000": 48, "6000 ada": 142, "5000 ada": 100, "4000 ada": 48,
    "l40s": 142, "l40": 142, "l4": 58, "t4": 40, "v100": 80, "p100": 56,
    "5090": 170, "5080": 84, "5070 ti": 70, "5070": 48,
    "4090": 128, "4080": 76, "4070 ti": 60, "4070": 46, "4060 ti": 34, "4060": 24,
    "3090 ti": 84, "3090": 82, "3080 ti": 80, "3080": 68, "3070": 46, "3060": 28, "2080 ti": 68,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The figures that decide buffer sizes."""

    capability: tuple[int, int] = (9, 0)
    multiprocessors: int = 132
    threads_each: int = 2048
    matmul_workspace_bytes: int = 32 * 1024 * 1024
    # the kernels that `scaled_dot_product_attention` tries, in its order; each takes only some inputs
    attention: tuple[str, ...] = ("cudnn", "flash", "efficient", "math")

    @property
    def large_shared_memory(self) -> bool:
        """More than 160 KiB of shared memory a block: datacenter cards (A100 on), not those for desktops."""
        return self.capability in ((8, 0), (8, 7), (9, 0), (10, 0), (10, 3))


def hardware_of(gpu: GpuSpec | None, torch: tuple[int, int]) -> Hardware:
    """The figures of a card; without one, those of an H200."""
    if gpu is None or gpu.capability is None:
        return Hardware()
    name = gpu.name.lower()
    count = next((count for fragment, count in _MULTIPROCESSORS.items() if fragment in name), 132)
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
    )


def _attention(major: int, torch: tuple[int, int]) -> tuple[str, ...]:
    """cuDNN's kernel comes first on datacenter cards from Hopper on; flash attention needs Ampere."""
    kernels: tuple[str, ...] = ("efficient", "math")
    if major >= 8:
        kernels = ("flash", *kernels)
    if major in (9, 10) and torch >= (2, 9):
        kernels = ("cudnn", *kernels)
    return kernels
