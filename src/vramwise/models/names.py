"""Infer a known shape from the name of a fine-tune or folder: `OpenHermes-2.5-Mistral-7B`, `/models/llama-3-8b`.

A name is split into words and numbers. It means a known model if that model's words, including its size, appear in it
in sequence. Words without information on the shape (instruct, chat, AWQ, dates, versions such as v0.1) are ignored on
both sides. If the words match models of different shapes, none is chosen and the candidates are named. A name may also
say that a 4-bit checkpoint keeps some layers in 16 bits (`is_wide`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import PurePosixPath
from typing import Any, NamedTuple

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
# words that denote a size
_SIZES = frozenset(
    (
        *("mini", "medium", "nemo", "tiny", "small", "base", "large", "xl", "xxl"),
        *("xsmall", "xlarge", "xxlarge", "turbo"),
    )
)
_QUANTISED = {"awq": "awq", "gptq": "gptq"} | dict.fromkeys(("bnb", "4bit", "nf4"), "bitsandbytes_4bit")
# How many path parts to try: a training run's folder may not name the model, but a parent may.
_LOOK_UP = 3


# Name endings of copies and how those are stored; None: like the original.
_ENDINGS = {
    **dict.fromkeys(("-bnb-4bit", "-bnb-nf4", "-bnb-nf4-bf16", "-4bit"), "bitsandbytes_4bit"),
    **dict.fromkeys(("-bf16", "-fp16", "-dequantized"), None),
    "-awq": "awq",
    "-gptq": "gptq",
}


class Taken(NamedTuple):
    """The known model that a name refers to, and how its checkpoint is stored, if the name says so."""

    known: str
    quantization: str | None


class Unclear(NamedTuple):
    """Known models of different shapes that the name could mean."""

    candidates: tuple[str, ...]


def stored_as(name: str) -> tuple[str, str | None]:
    """Return the name without its storage suffix, and the storage that suffix names."""
    ending = max((ending for ending in _ENDINGS if name.endswith(ending)), key=len, default="")
    return name.removesuffix(ending), _ENDINGS.get(ending)


def words(name: str) -> tuple[str, ...]:
    """Return the words and numbers of a name that say something about a shape."""
    text = re.sub(r"(\d)_(\d)", r"\1.\2", name.lower())
    found = [word for word in _WORD.findall(_VERSION.sub(" ", text)) if not _DATE.fullmatch(word)]
    sized = any(word != "base" and _is_size(word) for word in found)  # then "base" says how it was trained
    return tuple(word for word in found if word not in _SILENT or (word == "base" and not sized))


@cache
def _known(ids: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], str], ...]:
    found = [(words(known.rpartition("/")[2]), known) for known in ids]
    return tuple((cut, known) for cut, known in found if len(cut) > 1 and any(map(_is_size, cut)))


def _is_size(word: str) -> bool:
    return word in _SIZES or _SIZE.fullmatch(word) is not None


def carried(name: str, shapes: Iterable[tuple[str, object]]) -> Taken | Unclear | None:
    """Return the known model a name refers to.

    `shapes`: known ids, each with a value that is equal for equal shapes.
    """
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
    """Return a known model without a size in its name, under another owner: the same words, at least two."""
    leaf = name.rstrip("/").rpartition("/")[2]
    wanted = words(leaf)
    found = [known for known in ids if words(known.rpartition("/")[2]) == wanted] if len(wanted) > 1 else []
    return Taken(found[0], _quantization(leaf)) if len(found) == 1 else None


_BILLIONS = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z0-9])")
_ACTIVE = re.compile(r"(?<![a-z0-9])a\d+(?:\.\d+)?b")  # of a mixture: so many parameters are used at once
# Plain decoders, whose figures stand for those of an unknown model of their size.
_PLAIN_TYPES = ("llama", "mistral", "qwen2", "qwen3")
_NEAR = 0.1  # as a share of the size


def plain_of_size(name: str, shapes: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the id of a plain model with as many parameters as the name states ("7b"); None if it states none."""
    leaf = name.rstrip("/").rpartition("/")[2].lower()
    found = set(_BILLIONS.findall(leaf))
    if len(found) != 1 or _ACTIVE.search(leaf) or len(words(leaf)) < 2 or not (size := float(found.pop()) * 1e9):
        return None
    return plain_of_count(size, shapes)


def plain_of_count(count: float, shapes: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the id of the plain model whose number of parameters is closest to `count`; None if none is close."""
    plain = [one for one in shapes if one["config"]["model_type"] in _PLAIN_TYPES and one.get("published")]
    off, known = min((abs(shape["published"] / count - 1), shape["ids"][0]) for shape in plain)
    return known if off < _NEAR else None


def _parts(name: str) -> list[str]:
    """Return the last part of a path or id, then those above it."""
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in ("/", ".", "..")]
    return parts[-1 : -_LOOK_UP - 1 : -1]


def _best(name: Sequence[str], known: Iterable[tuple[tuple[str, ...], str]]) -> list[str]:
    """Return the known ids with the most words in the name: consecutive if any match so, otherwise in order."""
    for matches in (_in_one_run, _in_order):
        fitting = [(len(cut), known_id) for cut, known_id in known if matches(cut, name)]
        if fitting:
            most = max(fitting)[0]
            return [known_id for length, known_id in fitting if length == most]
    return []


def _in_one_run(cut: Sequence[str], name: Sequence[str]) -> bool:
    width = len(cut)
    return any(tuple(name[start : start + width]) == tuple(cut) for start in range(len(name) - width + 1))


def _in_order(cut: Sequence[str], name: Sequence[str]) -> bool:
    """Whether the first two words (a family and its version) are adjacent and the others come anywhere after them."""
    for start in range(len(name) - 1):
        if tuple(name[start : start + 2]) == tuple(cut[:2]):
            rest = iter(name[start + 2 :])
            if all(word in rest for word in cut[2:]):
                return True
    return False


def _closest(name: str, found: Sequence[str]) -> str:
    """Return the id of one shape that shares the most words with the name as written; the first of those."""
    written = set(re.split(r"[^a-z0-9.]+", name.lower()))
    return max(found, key=lambda known: len(written & set(re.split(r"[^a-z0-9.]+", known.lower()))))


def _quantization(name: str) -> str | None:
    written = re.split(r"[^a-z0-9]+", name.lower())
    return next((_QUANTISED[word] for word in written if word in _QUANTISED), None)


# The end of names of 4-bit checkpoints of Unsloth that keep some layers in 16 bits ("dynamic").
_DYNAMIC = "-unsloth-bnb-4bit"
# Checkpoints whose 16-bit layers take much more memory, as measured: 11.9 GiB against 9.9 for Qwen3-14B, 19.1 against
# 15.6 for Gemma 3 27B. Llama 3.3 70B took 4 % more.
_WIDE = ("qwen3", "gemma-3")
# The largest excess over the weights in 4 bits: a fifth of them in two notebooks.
MORE_WEIGHTS = 0.25


def is_wide(checkpoint: object) -> bool:
    """Return whether a checkpoint of this name has 16-bit layers that take much more memory than 4-bit ones."""
    name = str(checkpoint or "").lower()
    return name.endswith(_DYNAMIC) and any(word in name for word in _WIDE)
