"""Finds keys of a file that its trainer does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from vramwise.bundled import bundled_json
from vramwise.trainers.arguments.vocabulary import RENAMED, Vocabulary
from vramwise.trainers.names import suggest
from vramwise.types import Document

# From this similarity on, a misspelt word is assumed to mean the similar one.
_VERY_CLOSE = 0.88


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangeKey:
    """An unknown key: why it is unknown, the key that is meant (None: not known), and whether it can be deleted."""

    key: str
    why: str
    now: str | None = None
    drop: bool = False


def strange_keys(
    values: Mapping[Any, Any], words: Vocabulary, title: str, named: Mapping[str, str]
) -> Iterator[StrangeKey]:
    """Yield every key that the trainer does not have, with suggestions.

    `named`: field → the trainer's own key for it, as in a run.
    """
    for key in values:
        if not isinstance(key, str) or key in words:
            continue
        here = named.get(other_words().get(key, ""))
        if here in words:
            why = f"{title} has no key '{key}': use {here}, its name in this trainer"
            yield StrangeKey(key=key, why=why)
        else:
            from difflib import SequenceMatcher  # only wanted when a key is unknown

            near = suggest(key, words.keys())
            asks = f": did you mean {' or '.join(near)}?" if near else ""
            close = near and SequenceMatcher(None, key, near[0]).ratio() >= _VERY_CLOSE and near[0] not in values
            yield StrangeKey(key=key, why=f"{title} has no key '{key}'{asks}", now=near[0] if close else None)


def written_names(document: Document) -> Mapping[Any, Any]:
    """Return the values of a file under the names that it writes: a script's are read under their names of today."""
    home = None if document.script is None else document.script.homes.get("args")
    old = {key: RENAMED[key] for key in (home.arguments if home is not None else ()) if key in RENAMED}
    named = {now: key for key, now in old.items() if now in document.values}
    return {named.get(key, key): value for key, value in document.values.items()} if named else document.values


@cache
def other_words() -> Mapping[str, str]:
    """Return the keys of all trainers with the field of a run that each sets (scripts/other_words.py)."""
    return cast(Mapping[str, str], bundled_json("schema/words.json", __file__))
