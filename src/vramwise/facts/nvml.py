"""The NVIDIA card of this machine, from NVML through ctypes: no torch, no dependency, no CUDA context.

Any failure (no driver, no card, a MIG slice, an odd variable) means unknown: None, never an error. AMD cards are not
detected.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from vramwise.facts.gpus import multiprocessors_of, nvidia_spec
from vramwise.types import GpuSpec
from vramwise.units import whole_number

_SUCCESS = 0
_NAME_BYTES = 96
_LIBRARIES = ("libnvidia-ml.so.1", "nvml.dll")


class _NvmlError(Exception):
    """A call that did not return success."""


def local_gpu(*, environ: Mapping[str, str] | None = None, library: Any | None = None) -> tuple[GpuSpec, int] | None:
    """Return the card that a run on this machine would use and how many there are, or None.

    CUDA_VISIBLE_DEVICES is respected. If cards differ, the one with the least memory counts, as it runs out first.
    """
    try:
        cards = _visible_cards(library or _load(), os.environ if environ is None else environ)
    except (_NvmlError, OSError, AttributeError, ValueError, LookupError):
        return None
    if not cards:
        return None
    return min(cards, key=lambda card: card.memory_bytes), len(cards)


def driver_version(*, library: Any | None = None) -> str | None:
    """Return the version of this machine's NVIDIA driver, or None."""
    try:
        library = library or _load()
        _call(library.nvmlInit_v2)
        try:
            return _text(library.nvmlSystemGetDriverVersion)
        finally:
            library.nvmlShutdown()
    except (_NvmlError, OSError, AttributeError):
        return None


def _load() -> Any:
    import ctypes

    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise _NvmlError("no library")


def _visible_cards(library: Any, environ: Mapping[str, str]) -> list[GpuSpec]:
    _call(library.nvmlInit_v2)
    try:
        handles = _handles(library)
        chosen = _chosen(environ.get("CUDA_VISIBLE_DEVICES"), [_uuid(library, handle) for handle in handles])
        return [_card(library, handles[index]) for index in chosen]
    finally:
        library.nvmlShutdown()


def _chosen(visible: str | None, uuids: list[str]) -> list[int]:
    """Return the positions that CUDA_VISIBLE_DEVICES selects, by number or UUID prefix.

    Like CUDA, stops at the first invalid one.
    """
    if visible is None:
        return list(range(len(uuids)))
    chosen: list[int] = []
    for word in visible.split(","):
        index = _position(word.strip(), uuids)
        if index is None or index in chosen:
            break
        chosen.append(index)
    return chosen


def _position(word: str, uuids: list[str]) -> int | None:
    number = whole_number(word)
    if number is not None:
        return number if number < len(uuids) else None
    matches = [index for index, uuid in enumerate(uuids) if word and uuid.startswith(word)]
    return matches[0] if len(matches) == 1 else None


def _handles(library: Any) -> list[Any]:
    import ctypes

    count = ctypes.c_uint()
    _call(library.nvmlDeviceGetCount_v2, ctypes.byref(count))
    handles = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        _call(library.nvmlDeviceGetHandleByIndex_v2, ctypes.c_uint(index), ctypes.byref(handle))
        handles.append(handle)
    return handles


def _card(library: Any, handle: Any) -> GpuSpec:
    import ctypes

    major, minor = ctypes.c_int(), ctypes.c_int()
    _call(library.nvmlDeviceGetCudaComputeCapability, handle, ctypes.byref(major), ctypes.byref(minor))
    name = _text(library.nvmlDeviceGetName, handle).removeprefix("NVIDIA ")
    capability = (major.value, minor.value)
    return nvidia_spec(
        name=name,
        memory_bytes=_memory_bytes(library, handle),
        capability=capability,
        multiprocessors=multiprocessors_of(name),
    )


def _memory_bytes(library: Any, handle: Any) -> int:
    """Return the total minus the driver's share: on an H200 (driver 580) exactly what torch reports as total."""
    import ctypes

    class Memory(ctypes.Structure):  # NVML's nvmlMemory_v2_t
        _fields_ = (
            ("version", ctypes.c_uint),
            ("total", ctypes.c_ulonglong),
            ("reserved", ctypes.c_ulonglong),
            ("free", ctypes.c_ulonglong),
            ("used", ctypes.c_ulonglong),
        )

    # NVML's version field: the structure's size, and 2 in the top byte.
    memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
    _call(library.nvmlDeviceGetMemoryInfo_v2, handle, ctypes.byref(memory))
    return int(memory.total - memory.reserved)


def _uuid(library: Any, handle: Any) -> str:
    return _text(library.nvmlDeviceGetUUID, handle)


def _text(function: Any, *of: Any) -> str:
    import ctypes

    buffer = ctypes.create_string_buffer(_NAME_BYTES)
    _call(function, *of, buffer, ctypes.c_uint(_NAME_BYTES))
    return buffer.value.decode("utf-8", "replace")


def _call(function: Any, *arguments: Any) -> None:
    if function(*arguments) != _SUCCESS:
        raise _NvmlError(getattr(function, "__name__", "nvml"))
