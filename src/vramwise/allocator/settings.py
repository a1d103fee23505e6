"""Parses PYTORCH_*_ALLOC_CONF: which variable torch reads, and what its value means, by torch version.

The behaviour follows PyTorch's sources (CUDAAllocatorConfig.cpp up to 2.9, c10/core/AllocatorConfig.h from 2.10) and
was checked against torch 2.13's own parser. The version that introduced each option was read from the libraries of
torch 2.2 to 2.15. Versions before 2.2 are treated as 2.2. Options for pinned host memory, locking and virtual addresses
(`expandable_segments_reserve` and its variant by class of stream) are ignored: they do not change device memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.units import MIB

TorchVersion = tuple[int, int]

OLDEST: TorchVersion = (2, 2)
CUDA_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
HIP_VARIABLE = "PYTORCH_HIP_ALLOC_CONF"
GENERIC_VARIABLE = "PYTORCH_ALLOC_CONF"

# roundup_power2_divisions has one slot for each power of two from 1 MiB to 32 GiB.
DIVISION_SLOTS = 16
# Longer words cannot be numbers that torch can read. They are shortened in messages.
_LONGEST_WORD = 40
NO_SPLIT_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorSettings:
    """The settings of the CUDA allocator. The defaults are torch's own."""

    text: str = ""
    backend: str = "native"
    expandable_segments: bool = False
    max_split_bytes: int = NO_SPLIT_LIMIT  # blocks this large are not split
    max_non_split_rounding_bytes: int = 20 * MIB
    roundup_divisions: tuple[int, ...] = (0,) * DIVISION_SLOTS
    garbage_collection_threshold: float = 0.0  # 0: off
    large_segment_bytes: int = 20 * MIB
    memory_fraction: float = 1.0


def effective_settings(torch: TorchVersion, env: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the settings string of the CUDA allocator and the variable that it comes from (None if none is set).

    A variable that is set but empty counts as set. torch 2.9 parses PYTORCH_ALLOC_CONF, but its CUDA allocator does
    not use the result.
    """
    names = (CUDA_VARIABLE,) if torch < (2, 10) else (CUDA_VARIABLE, HIP_VARIABLE, GENERIC_VARIABLE)
    for name in names:
        if name in env:
            return env[name], name
    return "", None


def parse_settings(text: str, torch: TorchVersion) -> AllocatorSettings:
    """Parse a settings string as this torch version does. Raises VramwiseError if torch would reject it."""
    fields: dict[str, Any] = {}
    options = _split_options(text)
    # From 2.11 on, torch reads the large segment size first, because it is the lower bound of other options.
    options.sort(key=lambda option: option[0] != "large_segment_size_mb")
    for name, value in options:
        reader = _READERS.get(name)
        if reader is None and name not in _IGNORED:
            raise VramwiseError(f"'{name}' is not an option of torch's CUDA allocator (in '{text}')")
        since = _SINCE.get(name, OLDEST)
        if torch < since:
            raise VramwiseError(
                f"torch {torch[0]}.{torch[1]} does not know the allocator option '{name}': it came with "
                f"torch {since[0]}.{since[1]} (in '{text}')"
            )
        if reader is not None:
            reader(name, value, torch, fields)
    return AllocatorSettings(text=text, **fields)


def first_version_with(text: str) -> TorchVersion:
    """Return the first torch version that supports every option of a settings string."""
    return max((_SINCE.get(name, OLDEST) for name, _ in _split_options(text)), default=OLDEST)


# A value is one word, or the (key, value) pairs of a bracketed list.
_Value = str | list[tuple[str, str]]
_Reader = Callable[[str, _Value, TorchVersion, dict[str, Any]], None]


def _split_options(text: str) -> list[tuple[str, _Value]]:
    """Split `a:1,b:[c:2]` into [("a", "1"), ("b", [("c", "2")])]. Ignores whitespace and a trailing comma."""
    rest = re.sub(r"\s+", "", text)
    options: list[tuple[str, _Value]] = []
    while rest:
        match = re.match(r"([^,:\[\]]+):(?:\[([^\[\]]*)\]|([^,:\[\]]+))(?:,|$)", rest)
        if match is None:
            raise VramwiseError(
                f"'{text}' is not an allocator setting: expected option:value, separated by commas, at '{rest}'"
            )
        name, pairs, word = match.groups()
        options.append((name, word if pairs is None else _split_pairs(text, pairs)))
        rest = rest[match.end() :]
    return options


def _split_pairs(text: str, pairs: str) -> list[tuple[str, str]]:
    split = [tuple(pair.split(":")) for pair in pairs.split(",") if pair]
    for pair in split:
        if len(pair) != 2 or not all(pair):
            raise VramwiseError(f"'{':'.join(pair)}' in '{text}' should read size:divisions")
    return [(key, value) for key, value in split]


def _whole_number(name: str, value: _Value) -> int:
    """Parse a number as C's strtoull does: digits up to the first other character; negative numbers wrap around."""
    match = re.match(r"[+-]?\d+", value) if isinstance(value, str) else None
    number = int(match[0]) if match and len(match[0]) <= _LONGEST_WORD else 1 << 64
    if match is None or abs(number) >= 1 << 64:
        raise VramwiseError(f"{name} takes a whole number, not '{_shown(value)}'")
    return number % (1 << 64)


def _fraction(name: str, value: _Value) -> float:
    match = re.match(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value) if isinstance(value, str) else None
    if match is None:
        raise VramwiseError(f"{name} takes a number between 0 and 1, not '{_shown(value)}'")
    return float(match[0])


def _shown(value: _Value) -> str:
    words = value if isinstance(value, str) else "[" + ",".join(f"{key}:{word}" for key, word in value) + "]"
    return words if len(words) <= _LONGEST_WORD else f"{words[:_LONGEST_WORD]}…"


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _read_backend(name: str, value: _Value, torch: TorchVersion, fields: dict[str, Any]) -> None:
    if value not in ("native", "cudaMallocAsync", "hipMallocAsync"):
        raise VramwiseError(f"{name} is native or cudaMallocAsync, not '{_shown(value)}'")
    fields["backend"] = value


def _read_expandable(name: str, value: _Value, torch: TorchVersion, fields: dict[str, Any]) -> None:
    if value not in ("True", "False"):
        raise VramwiseError(f"{name} takes True or False (spelled so), not '{_shown(value)}'")
    fields["expandable_segments"] = value == "True"


def _read_large_segment(name: str, value: _Value, torch: TorchVersion, fields: dict[str, Any]) -> None:
    size_mb = _whole_number(name, value)
    if size_mb <= 10:
        raise VramwiseError(f"{name} must be above 10, not {size_mb}")
    fields["large_segment_bytes"] = min(size_mb * MIB, NO_SPLIT_LIMIT)


def _size_at_least_a_large_segment(
    name: str, value: _Value, torch: TorchVersion, fields: dict[str, Any], field: str
) -> None:
    size_mb = _whole_number(name, value)
    least = fields.get("large_segment_bytes", 20 * MIB) // MIB
    if size_mb < least or (torch < (2, 10) and size_mb == least):
        raise VramwiseError(f"{name} must be {'above' if torch < (2, 10) else 'at least'} {least}, not {size_mb}")
    fields[field] = min(size_mb * MIB, NO_SPLIT_LIMIT)


def _read_max_split(name: str, value: _Value, torch: TorchVersion, fields: dict[str, Any]) -> None:
    _size_at_least_a_large_segment(name, value, torch, fields, "max_split_bytes")


def _read_max_non_split(name: str, value: _Value, torch: TorchVersion, fields: dict[str, Any]) -> None:
    _size_at_least_a_large_segment(name, value, torch, fields, "max_non_split_rounding_bytes")


def _read_collection(name: str, value: _Value, torch: TorchVersion, fields: dict[str, Any]) -> None:
    threshold = _fraction(name, value)
    if not 0.0 < threshold < 1.0:
        raise VramwiseError(f"{name} must lie between 0 and 1, not {threshold:g}")
    fields["garbage_collection_threshold"] = threshold


def _read_memory_fraction(name: str, value: _Value, torch: TorchVersion, fields: dict[str, Any]) -> None:
    fraction = _fraction(name, value)
    if not 0.0 <= fraction <= 1.0:
        raise VramwiseError(f"{name} must lie between 0 and 1, not {fraction:g}")
    fields["memory_fraction"] = fraction


def _read_roundup(name: str, value: _Value, torch: TorchVersion, fields: dict[str, Any]) -> None:
    if isinstance(value, str):
        divisions = _whole_number(name, value)
        if not _is_power_of_two(divisions):
            raise VramwiseError(f"{name} must be a power of two, not {divisions}")
        fields["roundup_divisions"] = (divisions,) * DIVISION_SLOTS
        return
    slots = [0] * DIVISION_SLOTS
    last, first = 0, True
    for key, word in value:
        divisions = _whole_number(name, word)
        if divisions and not _is_power_of_two(divisions):
            raise VramwiseError(f"{name}: the divisions for '{key}' must be a power of two or 0, not {divisions}")
        if key == ">":
            # Up to 2.9, ">" also overwrote the last named slot, or the first slot if none was named before.
            start = last if torch < (2, 10) else last + 1
            slots[start:] = [divisions] * (DIVISION_SLOTS - start)
            continue
        size_mb = _whole_number(name, key)
        if not _is_power_of_two(size_mb):
            raise VramwiseError(f"{name}: the size '{key}' must be a power of two (in MiB) or '>'")
        slot = min(size_mb.bit_length() - 1, DIVISION_SLOTS - 1)
        if first:
            slots[:slot] = [divisions] * slot
        slots[slot] = divisions
        last, first = slot, False
    fields["roundup_divisions"] = tuple(slots)


_READERS: dict[str, _Reader] = {
    "backend": _read_backend,
    "expandable_segments": _read_expandable,
    "garbage_collection_threshold": _read_collection,
    "large_segment_size_mb": _read_large_segment,
    "max_non_split_rounding_mb": _read_max_non_split,
    "max_split_size_mb": _read_max_split,
    "per_process_memory_fraction": _read_memory_fraction,
    "roundup_power2_divisions": _read_roundup,
}
_IGNORED = frozenset(
    (
        "expandable_segments_reserve",
        "expandable_segments_reserve_by_class",
        "graph_capture_record_stream_reuse",
        "pinned_free_catch_all",
        "pinned_max_cached_size_mb",
        "pinned_max_round_threshold_mb",
        "pinned_num_register_threads",
        "pinned_reserve_segment_size_mb",
        "pinned_use_background_threads",
        "pinned_use_cuda_host_register",
        "pinned_use_hip_host_register",
        "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",
        "throw_on_cudamalloc_oom",
    )
)
# Options that are not listed exist since 2.2 or earlier.
_SINCE: dict[str, TorchVersion] = {
    "max_non_split_rounding_mb": (2, 6),
    "pinned_use_background_threads": (2, 6),
    "graph_capture_record_stream_reuse": (2, 9),
    "per_process_memory_fraction": (2, 10),
    "pinned_reserve_segment_size_mb": (2, 10),
    "large_segment_size_mb": (2, 11),
    "pinned_free_catch_all": (2, 12),
    "throw_on_cudamalloc_oom": (2, 12),
    "pinned_max_cached_size_mb": (2, 13),
    "pinned_max_round_threshold_mb": (2, 13),
    "expandable_segments_reserve": (2, 15),
    "expandable_segments_reserve_by_class": (2, 15),
}
