"""The figures of an out-of-memory message: what was requested, and the state of the card.

Figures have two decimals, and the request is what would have been taken from the driver: 2 MiB for any request up to 1
MiB, 20 MiB for any below 10 MiB, otherwise a multiple of 2 MiB.
"""

from __future__ import annotations

import re

from vramwise.diagnosis.evidence import MemoryText, Process
from vramwise.diagnosis.read.prefixes import unfolded
from vramwise.units import GIB, MIB

_UNITS = {"bytes": 1, "B": 1, "KiB": 1024, "KB": 1024, "MiB": MIB, "MB": MIB, "GiB": GIB, "GB": GIB, "TiB": 1024 * GIB}
# Not the end of something longer, as in "1.2.3 GiB"; ASCII digits only.
_SIZE = r"(?<![0-9.])([0-9]{1,15}(?:\.[0-9]{1,4})?) ?(bytes|[KMGT]iB|[KMG]?B)\b"
_TORCH = {
    "requested": re.compile(rf"Tried to allocate {_SIZE}"),
    "total": re.compile(rf"has a total capac?i?ty of {_SIZE}|; {_SIZE} total capacity"),
    "free": re.compile(
        rf"(?:of which|;) {_SIZE}(?: is)? free|has a total capac?i?ty of \S{{1,20}} \w{{1,5}} of which {_SIZE}"
    ),
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
# As people type them.
_TOLD = {
    "requested": re.compile(rf"(?i)tr(?:ied|ying) to? al{{1,2}}oc\w* {_SIZE}"),
    "total": re.compile(rf"(?i)total(?: capac?i?ty)?(?: of)?:? {_SIZE}|{_SIZE}(?: in)? total"),
    "free": re.compile(rf"(?i){_SIZE}(?: is| are)? (?:free|left|available)|(?:of which|free:?) {_SIZE}"),
    "allocated": re.compile(
        rf"(?i){_SIZE}(?: is| are| were)?(?: already)? (?:al{{1,2}}ocated|in use|used)|allocated:? {_SIZE}"
    ),
}
_REQUEST = re.compile(r"(?i)tr(?:ied|ying) to? al{1,2}oc\w* [0-9]")
_DEVICE = re.compile(r"\bGPU (\d{1,3})\b|\bdevice (\d{1,3}) would exceed")
_LAST_WORDS = re.compile(
    r"reserved by PyTorch but unallocated|reserved in total by PyTorch|\bcached\)"
    r"|Free \(according to CUDA\)\s*: \S+ \w+"
)
# All processes on the card, if torch can see them; one is the run's own.
_PROCESS = re.compile(rf"Process (\d{{1,12}}) has {_SIZE} memory in use")
_CPP = re.compile(r"while trying to (?:allocate|map) (\d{1,15}) bytes \(free: (\d{1,15}), total: (\d{1,15})\)")
_AGAIN = re.compile(r"out of memory|would exceed allowed|Traceback \(most recent|Tried to allocate")
_LONGEST = 2000
_MOST_LISTED = 64
_NO_CARD = 1 << 47


def read_memory_text(text: str, following: str) -> MemoryText:
    """Return the figures of a message, which may continue on the next lines (wrapped, or one figure per line)."""
    warned = _CPP.search(text)
    if warned:
        requested, free, total = map(int, warned.groups())
        return MemoryText(wording="torch-warning", requested_bytes=requested, free_bytes=free, total_bytes=total)
    if "would exceed allowed" in text:
        return _figures("async", _ASYNC, _by_words(text, following))
    if "MPS backend" in text:
        return _best("mps", _MPS, text, following)
    if _LAST_WORDS.search(text):
        return _best("torch", _TORCH, text, "")
    return _best("torch", _TORCH, text, following)


def read_told_figures(text: str) -> MemoryText | None:
    """Return the figures of a message that a person typed from a screen, or None if there is no request among them."""
    match = _REQUEST.search(text)
    if match is None:
        return None
    read = _figures("told", _TOLD, " ".join(text[max(0, match.start() - 200) : match.start() + _LONGEST].split()))
    return read if read.requested_bytes else None


def _best(wording: str, patterns: dict[str, re.Pattern[str]], text: str, following: str) -> MemoryText:
    """Return the reading with more figures, wrapped by a terminal or by a logger; a terminal may cut numbers in two."""
    read = [
        _figures("torch-old" if wording == "torch" and "already allocated" in whole else wording, patterns, whole)
        for whole in (_by_width(text, following), _by_words(text, following))
    ]
    return max(read, key=_how_many)


def _how_many(memory: MemoryText) -> int:
    figures = (memory.requested_bytes, memory.total_bytes, memory.free_bytes, memory.allocated_bytes)
    return sum(figure is not None for figure in (*figures, memory.unallocated_bytes, memory.this_process_bytes))


def _by_width(text: str, following: str) -> str:
    return _up_to_last_words(unfolded(text, _of_this_message(text, following))[0])


def _by_words(text: str, following: str) -> str:
    lines = (text, *_of_this_message(text, following)[:_LONGEST].split("\n"))
    return _up_to_last_words(" ".join(filter(None, (line.strip(" \t\r│┃║|") for line in lines))))


def _of_this_message(text: str, following: str) -> str:
    """Return the lines up to the next message; a message may begin on the line after its exception's name."""
    begun = _AGAIN.search(text)
    for again in _AGAIN.finditer(following[: 2 * _LONGEST]):
        before = text + following[: again.start()]
        if begun is None and not again[0].startswith("Traceback"):
            begun = again
        elif begun is None or "Tried" in before or not again[0].startswith("Tried"):
            return following[: again.start()]
    return following


def _up_to_last_words(whole: str) -> str:
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
    listed = tuple(
        Process(int(pid), int(float(number) * _UNITS[unit]))
        for pid, number, unit in _PROCESS.findall(text)[:_MOST_LISTED]
    )
    if "this_process" not in sizes and (own := _own_process(listed, sizes)):
        sizes["this_process"] = own
    _drop_nonsense(sizes)
    device = _DEVICE.search(text)
    return MemoryText(
        wording=wording,
        tolerance_bytes=_tolerance(sizes.get("requested", 0)),
        device=int(device[1] or device[2]) if device else None,
        processes=listed,
        **{f"{name}_bytes": size for name, size in sizes.items()},
    )


def _own_process(listed: tuple[Process, ...], sizes: dict[str, int]) -> int | None:
    """Return the memory of the run's own process: the smallest listed that can hold what torch has reserved."""
    reserved = sizes.get("allocated", 0) + sizes.get("unallocated", 0)
    return min((size for _, size in listed if size >= reserved), default=None) if reserved else None


def _drop_nonsense(sizes: dict[str, int]) -> None:
    """Remove impossible figures.

    A container hides the process (0 bytes in use, or 2**64), or no memory fraction was set (2**64). A card of 0 bytes
    or of 2**47 says nothing about the run either.
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
    """Return half of the last decimal shown, plus the rounding to 2 MiB."""
    return (5 * GIB if requested >= GIB else 5 * MIB) // 1000 + 2 * MIB
