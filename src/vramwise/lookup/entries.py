"""What is searched: every rule, every key with a known effect on memory, every section of the documentation.

The pages are in the `pages` folder here in an installed package, and in `docs/` of a checkout; without them the rest
remains.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from vramwise.lookup.keys import listing_trainers, memory_note, newest
from vramwise.trainers.base import Trainer
from vramwise.trainers.rulebook import all_rules
from vramwise.trainers.vocabulary import key_facts_of

Kind = Literal["rule", "key", "page"]
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"```.*?```|!\[[^\]]*\]\([^)]*\)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One searchable item. `see`: how to read all of it on the command line."""

    kind: Kind
    name: str
    title: str
    text: str
    see: str
    trainer: str = ""  # for keys: the first trainer that has it


@cache
def entries() -> tuple[Entry, ...]:
    """Return all entries, rules first: with equal scores, a rule goes before a page."""
    return (*_rules(), *_keys(), *_pages())


def _rules() -> Iterator[Entry]:
    for rule in all_rules():
        text = f"{rule.documentation}\n\n{rule.beyond_trainer}".strip()
        yield Entry(kind="rule", name=rule.id, title=rule.title, text=text, see=f"vramwise explain {rule.id}")


def _keys() -> Iterator[Entry]:
    """Yield keys with a known effect on memory.

    Keys of one trainer that set the same field are one entry, and so are equal names of several trainers.
    """
    found: dict[str, Entry] = {}
    for trainer in listing_trainers():
        by_subject: dict[str, list[str]] = {}
        said: dict[str, str] = {}
        for key, fact in key_facts_of(trainer, newest(trainer)).items():
            field, note = memory_note(trainer, key, fact)
            if note and not fact.deprecated:
                by_subject.setdefault(field or key, []).append(key)
                said[key] = note
        for subject, keys in by_subject.items():
            name, *others = sorted(keys, key=lambda key: (key != subject, len(key), key))
            before = found.get(name)
            found[name] = _key(trainer, name, others, said[name]) if before is None else _shared(before, trainer)
    yield from found.values()


def _key(trainer: Trainer, name: str, others: list[str], note: str) -> Entry:
    beside = f" (and {', '.join(others)})" if others else ""
    title = f"{trainer.title}'s {name}{beside}"
    return Entry(kind="key", name=name, title=title, text=note, see=f"vramwise explain {name}", trainer=trainer.name)


def _shared(entry: Entry, trainer: Trainer) -> Entry:
    return replace(entry, title=f"{entry.title}, and {trainer.title}'s")


def pages() -> dict[str, str]:
    """Return the documentation pages by name, as Markdown; empty if they are not installed."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(pages_folder().glob("*.md"))}


def _pages() -> Iterator[Entry]:
    for page, text in pages().items():
        parts = _HEADING.split(_BLOCK.sub("", text))
        top = parts[1] if len(parts) > 1 else page
        for title, body in zip(parts[1::2], parts[2::2], strict=True):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", body).strip()
            if plain:
                shown = title if title == top else f"{top}: {title}"
                name = f"{page}.md#" + re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")
                yield Entry(kind="page", name=name, title=shown, text=plain, see=f"docs/{name}")


def pages_folder() -> Path:
    """Return the folder of the pages, which may not exist."""
    installed = Path(__file__).parent / "pages"
    checkout = Path(__file__).parents[3]
    return checkout / "docs" if not installed.is_dir() and (checkout / "pyproject.toml").is_file() else installed
