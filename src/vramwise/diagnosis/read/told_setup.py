"""The run that a text describes: the model, the method, sharding and sizes, in prose or as options of a command.

Names are returned as written; whether they are known is decided where they are used.
"""

from __future__ import annotations

from typing import Literal

from vramwise.diagnosis.evidence import Setup
from vramwise.diagnosis.read.said import said

_PATTERNS, _NAMED = said("setup"), said("named")


def read_setup(text: str) -> Setup:
    """Return the run that a text describes."""
    model = _PATTERNS["model"].search(text)
    gpu = _PATTERNS["gpu"].search(text)
    cards = _number("cards", text)
    if gpu is not None and (gpu[1] or gpu[4]):
        cards = int(gpu[1] or gpu[4])
    return Setup(
        model=model[1].strip(" .-") if model else None,
        method=_method(text),
        zero_stage=_number("zero", text),
        fsdp=_PATTERNS["fsdp"].search(text) is not None,
        offload=_PATTERNS["offload"].search(text) is not None,
        cards=cards,
        gpu=None if gpu is None else gpu[2] + (f"-{gpu[3]}gb" if gpu[3] else ""),
        sequence_len=_length(text),
        micro_batch=_number("batch", text),
        billions=min((float(found) for found in _PATTERNS["billions"].findall(text)), default=0),
        named=frozenset(name for name, pattern in _NAMED.items() if pattern.search(text)),
    )


def _method(text: str) -> Literal["full", "lora", "qlora"] | None:
    if _PATTERNS["qlora"].search(text):
        return "qlora"
    full, lora = _PATTERNS["full"].search(text), _PATTERNS["lora"].search(text)
    if full and (lora is None or full.start() < lora.start()):
        return "full"
    return "lora" if lora else None


def _number(name: str, text: str) -> int | None:
    match = _PATTERNS[name].search(text)
    return None if match is None else int(next(filter(None, match.groups())))


def _length(text: str) -> int | None:
    match = _PATTERNS["length"].search(text)
    if match is None:
        return None
    number, *thousands = (group for group in match.groups() if group is not None)
    return int(number) * (1024 if "".join(thousands).lower() == "k" else 1)
