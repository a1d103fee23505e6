"""Every out-of-memory text that CUDA, torch and the libraries around it have had, and the figures in them.

torch's own message changed with 1.4 (cached → reserved), 2.1 (sentences, and "capacty"), 2.9 (PYTORCH_ALLOC_CONF); its
async backend, MPS and XPU have their own. Its figures have two decimals, and its request is what would have been taken
from the driver: 2 MiB stands for any request up to 1 MiB, 20 MiB for any below 10 MiB, else it is a multiple of 2 MiB.
"""

from __future__ import annotations

import re

from vramwise.diagnosis.evidence import MemoryText
from vramwise.diagnosis.read.texts import failure
from vramwise.units import GIB, MIB

_UNITS = {"bytes": 1, "B": 1, "KiB": 1024, "KB": 1024, "MiB": MIB, "MB": MIB, "GiB": GIB, "GB": GIB, "TiB": 1024 * GIB}
# Not the end of something longer, as in "1.2.3 GiB", and in the digits that computers print.
_SIZE = r"(?<![0-9.])([0-9]{1,15}(?:\.[0-9]{1,4})?) ?(bytes|[KMGT]iB|[KMG]?B)\b"
_NCCL_OOM = r"Cuda failure (?:2 )?'out of memory'|Failed to CUDA (?:malloc|calloc)"
_NCCL_SHM = r"Error while creating shared memory segment|Call to posix_fallocate failed"

OOM_TEXTS = (
    failure("absurd-size", "more than 1EB", r"(?:CUDA|HIP) out of memory\. Tried to allocate more than 1EB memory"),
    failure(
        "fsdp-clone-oom",
        "Failed to clone() tensor",
        r"Failed to clone\(\) tensor with name (?P<name>[\w.]{1,120}?)\.? .{0,500}?(?P<oom>CUDA out of memory)",
        anywhere=True,
    ),
    failure("cuda-oom", "out of memory", r"(?:CUDA|HIP|XPU|MUSA|NPU) out of memory\. Tried to allocate"),
    failure("cuda-oom", "out of memory", r"MPS backend out of memory \("),
    failure(
        "cuda-oom", "Allocation on device", r"Allocation on device \d* ?would exceed allowed memory\. \(out of memory\)"
    ),
    failure("cuda-oom", "Allocation on device", r"Allocation on device\s*$"),
    failure(
        "nccl-oom",
        "NCCL",
        rf"NCCL WARN (?:{_NCCL_OOM})",
        anywhere=True,
    ),
    # torch quotes NCCL's last warning below its own message, on a line of its own.
    failure("nccl-oom", "Cuda failure", rf"^(?:Last error:\s*)?(?:{_NCCL_OOM})"),
    failure("nccl-oom", "Failed to CUDA", rf"^(?:Last error:\s*)?(?:{_NCCL_OOM})"),
    failure("nccl-shm", "NCCL", rf"NCCL WARN (?:{_NCCL_SHM})", anywhere=True),
    failure("nccl-shm", "shared memory segment", rf"^(?:Last error:\s*)?(?:{_NCCL_SHM})"),
    failure(
        "bnb-oom", "out of memory at line", r"(?:Error|CUDA error:?) out of memory at line \d+ in file", anywhere=True
    ),
    failure("cublas-oom", "CUBLAS_STATUS_ALLOC_FAILED", r"(?:CUDA error: |cuBLAS error: )?CUBLAS_STATUS_ALLOC_FAILED"),
    failure("cublas-oom", "CUBLAS_STATUS_NOT_INITIALIZED", r"CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling"),
    failure("cublas-oom", "CUDNN_STATUS_ALLOC_FAILED", r"(?:cuDNN error: )?CUDNN_STATUS_ALLOC_FAILED"),
    failure("cublas-oom", "CUDNN_STATUS_NOT_INITIALIZED", r"cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
    failure("driver-oom", "out of memory", r"CUDA (?:driver )?error: (?:\w+: )?out of memory"),
    failure("driver-oom", "CUDA_ERROR_OUT_OF_MEMORY", r"CUDA_ERROR_OUT_OF_MEMORY", anywhere=True),
    failure("driver-oom", "cudaErrorMemoryAllocation", r"cudaErrorMemoryAllocation"),
    failure(
        "kernel-shared-memory",
        "out of resource",
        r"(?:(?<![\w.])[\w.]{0,80}OutOfResources: )?out of resources?: shared memory(?:, )?"
        r"Required: (?P<required>\d+)(?:, )?Hardware limit: (?P<limit>\d+)",
    ),
    failure("does-not-fit", "dispatched on the CPU", r"Some modules are dispatched on the CPU or the disk"),
    # Its name alone, whatever follows.
    failure("cuda-oom", "OutOfMemoryError", r"^(?:torch\.(?:cuda\.)?)?OutOfMemoryError\b"),
)

_TORCH = {
    "requested": re.compile(rf"Tried to allocate {_SIZE}"),
    "total": re.compile(rf"has a total capac?i?ty of {_SIZE}|; {_SIZE} total capacity"),
    "free": re.compile(rf"(?:of which|;) {_SIZE}(?: is)? free"),
    "allocated": re.compile(rf"{_SIZE} (?:is allocated by PyTorch|already allocated)"),
    "unallocated": re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated"),
    "reserved": re.compile(rf"{_SIZE} (?:reserved in total by PyTorch|cached)"),
    "this_process": re.compile(rf"this process has {_SIZE} memory in use"),
    "allowed": re.compile(rf"{_SIZE} allowed"),
}
_ASYNC = {
    "requested": re.compile(rf"Requested\s{{0,30}}: {_SIZE}"),
    "total": re.compile(rf"Device limit\s{{0,30}}: {_SIZE}"),
    "free": re.compile(rf"Free \(according to CUDA\)\s{{0,10}}: {_SIZE}"),
    "allocated": re.compile(rf"Currently allocated\s{{0,30}}: {_SIZE}"),
    "allowed": re.compile(rf"PyTorch limit[^:]{{0,60}}: {_SIZE}"),
}
_MPS = {
    "requested": re.compile(rf"Tried to allocate {_SIZE}"),
    "allocated": re.compile(rf"MPS allocated: {_SIZE}"),
    "allowed": re.compile(rf"max allowed: {_SIZE}"),
}
_DEVICE = re.compile(r"\bGPU (\d{1,3})\b|\bdevice (\d{1,3}) would exceed")
_LAST_WORDS = re.compile(
    r"reserved by PyTorch but unallocated|reserved in total by PyTorch|\bcached\)"
    r"|Free \(according to CUDA\)\s*: \S+ \w+"
)
_AGAIN = re.compile(r"out of memory|would exceed allowed|Traceback \(most recent|Tried to allocate")
_LONGEST = 2000
_NO_CARD = 1 << 47


def read_memory_text(text: str, following: str) -> MemoryText:
    """The figures of a message, which may go on over the next lines (folded by a logger, or one figure a line)."""
    if "would exceed allowed" in text:
        return _figures("async", _ASYNC, _whole(text, following))
    if "MPS backend" in text:
        return _figures("mps", _MPS, _whole(text, following))
    whole = text if _LAST_WORDS.search(text) else _whole(text, following)
    return _figures("torch-old" if "already allocated" in whole else "torch", _TORCH, whole)


def _whole(text: str, following: str) -> str:
    """The message with the lines after it, up to its last words or the next message."""
    first = _AGAIN.search(text)
    said_twice = _AGAIN.search(following)
    if said_twice is not None and not (first and "Tried" not in text and said_twice[0].startswith("Tried")):
        following = following[: said_twice.start()]
    lines = [line.strip(" \t\r│┃║|") for line in (text, *following[:_LONGEST].split("\n"))]
    whole = " ".join(filter(None, lines))
    last = _LAST_WORDS.search(whole)
    return whole[: last.end()] if last else whole[:_LONGEST]


def _figures(wording: str, patterns: dict[str, re.Pattern[str]], text: str) -> MemoryText:
    sizes: dict[str, int] = {}
    for name, pattern in patterns.items():
        match = pattern.search(text)
        if match:
            number, unit = [group for group in match.groups() if group is not None][:2]
            sizes[name] = int(float(number) * _UNITS[unit])
    if "unallocated" not in sizes and "reserved" in sizes and "allocated" in sizes:
        sizes["unallocated"] = max(0, sizes["reserved"] - sizes["allocated"])
    sizes.pop("reserved", None)
    _drop_nonsense(sizes)
    device = _DEVICE.search(text)
    return MemoryText(
        wording=wording,
        tolerance_bytes=_tolerance(sizes.get("requested", 0)),
        device=int(device[1] or device[2]) if device else None,
        **{f"{name}_bytes": size for name, size in sizes.items()},
    )


def _drop_nonsense(sizes: dict[str, int]) -> None:
    """Figures that cannot be: a container hides the process (0 bytes in use, or 2**64), no fraction was set (2**64).

    A card of 0 bytes or of 2**47 says nothing about the run either.
    """
    for name in ("total", "allowed"):
        if not 0 < sizes.get(name, 1) < _NO_CARD:
            del sizes[name]
    total = sizes.get("total")
    used = sizes.get("this_process")
    if used is not None and (used < sizes.get("allocated", 0) or (total is not None and used > total + GIB)):
        del sizes["this_process"]
    if total is not None and sizes.get("allowed", 0) >= total:
        del sizes["allowed"]


def _tolerance(requested: int) -> int:
    """Half of the last decimal shown, and the rounding to 2 MiB."""
    return (5 * GIB if requested >= GIB else 5 * MIB) // 1000 + 2 * MIB
