"""The bundled catalogues of shapes: their ids, copies of them under other names, and ids that resemble a name.

The first is `models.json`. `more_models.jsonl` has further shapes, one a line, of which only the line of the name at
hand is parsed. There, a shape is listed where our own count of its parameters equals `count`. `checked` says how that
count was confirmed: by a published one, by the size in its name, or by a published one of a digit or two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from vramwise.bundled import bundled_json, bundled_text
from vramwise.models.names import Taken, stored_as

Entry = tuple[Mapping[str, Any], str | None]


def entry_of(name: str) -> Entry | None:
    """Return the shape with this id (in lower case) and how its checkpoint is stored, also of a copy; else None."""
    found = _catalogue().get(name)
    if found is not None:
        return found
    return _more_shape(name) or _mirrored(name)


def catalogue_ids() -> list[str]:
    """Return every hub id of the catalogue, as the hub spells it."""
    return sorted((name for shape in catalogue_shapes() for name, _ in _ids(shape)), key=str.lower)


@cache
def catalogue_shapes() -> list[Mapping[str, Any]]:
    """Return the catalogue's entries, as in models.json."""
    shapes: list[Mapping[str, Any]] = bundled_json("models/models.json")["shapes"]
    return shapes


def _ids(shape: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield the ids of a shape, each with its checkpoint's quantisation."""
    for name in shape["ids"]:
        yield name, None
    for method, names in shape.get("stored", {}).items():
        for name in names:
            yield name, method


@cache
def _catalogue() -> Mapping[str, Entry]:
    return {name.lower(): (shape, method) for shape in catalogue_shapes() for name, method in _ids(shape)}


# The owner whose repositories are copies of others, and the name endings of 4-bit copies.
_MIRROR, _IN_4_BITS = "unsloth/", ("-unsloth-bnb-4bit", "-bnb-4bit")


def _mirrored(name: str) -> Entry | None:
    """Return the entry that this id is a copy of, if the name is unambiguous; otherwise None."""
    if not name.startswith(_MIRROR):
        return None
    plain = name.removeprefix(_MIRROR)
    ending = next((ending for ending in _IN_4_BITS if plain.endswith(ending)), "")
    found = _by_last_part().get(plain.removesuffix(ending))
    return None if found is None else (found, "bitsandbytes_4bit" if ending else None)


def copied(name: str) -> Taken | None:
    """Return a known model under another owner; the end of the name may say how the copy is stored."""
    plain, method = stored_as(name.strip().rstrip("/").rpartition("/")[2].lower())
    found = [known for known in _originals() if known.rpartition("/")[2].lower() == plain]
    return Taken(found[0], method) if len({_shape_number(known) for known in found}) == 1 else None


@cache
def _originals() -> tuple[str, ...]:
    """Return the ids that are not copies."""
    return tuple(known for shape in every_shape() for known in shape["ids"] if not known.startswith(_MIRROR))


def every_shape() -> Iterator[Mapping[str, Any]]:
    """Yield the shapes of both catalogues."""

    yield from catalogue_shapes()
    yield from more_shapes()


def _shape_number(known: str) -> int | None:
    return next((number for number, shape in enumerate(every_shape()) if known in shape["ids"]), None)


@cache
def _by_last_part() -> Mapping[str, Mapping[str, Any]]:
    """Map names without their owner to entries, except names that several entries share."""
    found: dict[str, Mapping[str, Any] | None] = {}
    for shape in every_shape():
        for known in shape["ids"]:
            last = known.rpartition("/")[2].lower()
            found[last] = shape if found.get(last, shape) is shape else None
    return {name: shape for name, shape in found.items() if shape is not None}


def near_ids(name: str) -> list[str]:
    """Return catalogue ids similar to this one, best first."""
    from difflib import get_close_matches  # only wanted when a name is wrong

    spelled = {known.lower(): known for known in catalogue_ids()}
    wanted = name.strip().lower()
    found = get_close_matches(wanted, spelled, n=3, cutoff=0.8)
    if not found:  # the right model under the wrong owner, or without one
        leaves = {known.rpartition("/")[2]: known for known in reversed(spelled)}  # the first owner wins
        found = [leaves[leaf] for leaf in get_close_matches(wanted.rpartition("/")[2], leaves, n=3, cutoff=0.85)]
    return [spelled[known] for known in found]


_MORE = "models/more_models.jsonl"


def _more_shape(name: str) -> tuple[Mapping[str, Any], str | None] | None:
    """Return the shape with this hub id (in lower case), and how its checkpoint is stored; None if none has it."""
    text, lower = _texts()
    at = lower.find(f'"{name}"')
    if at < 0:
        return None
    shape: Mapping[str, Any] = json.loads(text[text.rfind("\n", 0, at) + 1 : text.find("\n", at)])
    ids: dict[str, str | None] = {known.lower(): None for known in shape["ids"]}
    ids |= {known.lower(): method for method, names in shape.get("stored", {}).items() for known in names}
    return (shape, ids[name]) if name in ids else None


@cache
def more_shapes() -> Sequence[Mapping[str, Any]]:
    """Return all of them, for names that only resemble a known one."""
    return [json.loads(line) for line in _texts()[0].splitlines()]


@cache
def _texts() -> tuple[str, str]:
    text = bundled_text(_MORE)
    return text, text.lower()
