"""A fine-tune or a local folder whose name carries a known shape: `OpenHermes-2.5-Mistral-7B`, `/models/llama-3-8b`.

A name is cut into words and numbers. A known model is meant where its own words, its size among them, appear in it
one after the other. Words that say nothing of the shape (instruct, chat, AWQ, dates, versions such as v0.1) are left
out on both sides. Where the words lead to models of different shapes, nothing is taken, and the candidates are named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import PurePosixPath
from typing import NamedTuple

_WORD = re.compile(r"\d+x\d+(?:\.\d+)?b|\d+(?:\.\d+)*[bmk](?![a-z])|\d+(?:\.\d+)*|[a-z]+")
_SIZE = re.compile(r"\d+x\d+(?:\.\d+)?b|\d+(?:\.\d+)*[bm]")
_VERSION = re.compile(r"(?<![a-z0-9])v\d+(?:\.\d+)*(?![a-z0-9])")
_DATE = re.compile(r"\d{4,}")
_SILENT = frozenset(
    (
        *("meta", "hf", "instruct", "chat", "base", "it", "pt", "sft", "dpo", "orpo", "kto", "reasoning", "thinking"),
        *(
            "bnb",
            "awq",
            "gptq",
            "gguf",
            "fp",
            "bf",
            "int",
            "nf",
            "quant",
            "quantized",
            "think",
            "preview",
            "final",
            "beta",
            "full",
        ),
        *("merged", "lora", "qlora", "finetune", "finetuned", "tuned", "ft", "model", "checkpoint", "latest", "hub"),
    )
)
# words that stand for a size
_SIZES = frozenset(("mini", "medium", "nemo"))
_QUANTISED = {"awq": "awq", "gptq": "gptq"} | dict.fromkeys(("bnb", "4bit", "nf4"), "bitsandbytes_4bit")
# Folders that a training run makes: their own name says nothing, the one above may.
_LOOK_UP = 3


# How names of copies end, and how those are stored; None: as the original.
_ENDINGS = {
    **dict.fromkeys(("-bnb-4bit", "-bnb-nf4", "-bnb-nf4-bf16", "-4bit"), "bitsandbytes_4bit"),
    **dict.fromkeys(("-bf16", "-fp16", "-dequantized"), None),
    "-awq": "awq",
    "-gptq": "gptq",
}


class Taken(NamedTuple):
    """The known model that a name carries, and how its checkpoint is stored, if the name says so."""

    known: str
    quantization: str | None


class Unclear(NamedTuple):
    """Known models of different shapes that the name could mean."""

    candidates: tuple[str, ...]


def stored_as(name: str) -> tuple[str, str | None]:
    """The name without the longest ending that says how a copy is stored, and what that says."""
    ending = max((ending for ending in _ENDINGS if name.endswith(ending)), key=len, default="")
    return name.removesuffix(ending), _ENDINGS.get(ending)


def words(name: str) -> tuple[str, ...]:
    """The words and numbers of a name that say something of a shape."""
    text = re.sub(r"(\d)_(\d)", r"\1.\2", name.lower())
    found = _WORD.findall(_VERSION.sub(" ", text))
    return tuple(word for word in found if word not in _SILENT and not _DATE.fullmatch(word))


@cache
def _known(ids: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], str], ...]:
    found = [(words(known.rpartition("/")[2]), known) for known in ids]
    return tuple((cut, known) for cut, known in found if len(cut) > 1 and any(map(_is_size, cut)))


def _is_size(word: str) -> bool:
    return word in _SIZES or _SIZE.fullmatch(word) is not None


def carried(name: str, shapes: Iterable[tuple[str, object]]) -> Taken | Unclear | None:
    """What a name carries, of known ids with something that is equal where their shapes are."""
    shape_of = dict(shapes)
    for part in _parts(name):
        found = _best(words(part), _known(tuple(shape_of)))
        if found:
            shared = {repr(shape_of[known]) for known in found}
            if len(shared) > 1:
                return Unclear(tuple(found[:4]))
            return Taken(_closest(part, found), _quantization(part))
    return _reuploaded(name, tuple(shape_of))


def _reuploaded(name: str, ids: tuple[str, ...]) -> Taken | None:
    """A known model that names no size, under another owner: its last part has the same words, at least two."""
    leaf = name.rstrip("/").rpartition("/")[2]
    wanted = words(leaf)
    found = [known for known in ids if words(known.rpartition("/")[2]) == wanted] if len(wanted) > 1 else []
    return Taken(found[0], _quantization(leaf)) if len(found) == 1 else None


def _parts(name: str) -> list[str]:
    """The last part of a path or id, then those above it."""
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in ("/", ".", "..")]
    return parts[-1 : -_LOOK_UP - 1 : -1]


def _best(name: Sequence[str], known: Iterable[tuple[tuple[str, ...], str]]) -> list[str]:
    """The known ids with the most words of their own in the name; in one run if any stand so, else in order."""
    for stands in (_in_one_run, _in_order):
        fitting = [(len(cut), known_id) for cut, known_id in known if stands(cut, name)]
        if fitting:
            most = max(fitting)[0]
            return [known_id for length, known_id in fitting if length == most]
    return []


def _in_one_run(cut: Sequence[str], name: Sequence[str]) -> bool:
    width = len(cut)
    return any(tuple(name[start : start + width]) == tuple(cut) for start in range(len(name) - width + 1))


def _in_order(cut: Sequence[str], name: Sequence[str]) -> bool:
    """The first two words side by side (a family and its version), the others anywhere after them."""
    for start in range(len(name) - 1):
        if tuple(name[start : start + 2]) == tuple(cut[:2]):
            rest = iter(name[start + 2 :])
            if all(word in rest for word in cut[2:]):
                return True
    return False


def _closest(name: str, found: Sequence[str]) -> str:
    """Of ids of one shape, the one that shares most with the name as it is written; the first of those."""
    written = set(re.split(r"[^a-z0-9.]+", name.lower()))
    return max(found, key=lambda known: len(written & set(re.split(r"[^a-z0-9.]+", known.lower()))))


def _quantization(name: str) -> str | None:
    written = re.split(r"[^a-z0-9]+", name.lower())
    return next((_QUANTISED[word] for word in written if word in _QUANTISED), None)
