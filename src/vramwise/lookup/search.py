"""The search: find entries for keywords or a symptom.

Texts are ranked by BM25, in which rare words count more and long texts less. Words are reduced to stems, and users'
terms are mapped to the terms of the texts.

Entries are every rule, every key with a known effect on memory, every section of the documentation. The pages are in
the `pages` folder here in an installed package, and in `docs/` of a checkout; without them the rest remains.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import log
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


_WORD = re.compile(r"[a-z0-9]+")
# Stop words.
_STOP = frozenset(
    re.findall(
        r"\w+",
        "a about after an and are as at be before but by can cuda do does during each every for from get how i if in "
        "into is it its me my no not of on or out so that the their then there this to too up use using was what "
        "when where which while why will with you your",
    )
)
# Users' terms → the terms of the texts. One word may map to several.
_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("oom", "vram"), ("memory",)),
    **dict.fromkeys(("evaluation", "validation", "val"), ("eval",)),
    **dict.fromkeys(("finetune", "finetuning"), ("train",)),
    **dict.fromkeys(("crash", "crashes"), ("fail",)),
    **dict.fromkeys(("optim", "optimiser"), ("optimizer",)),
    **dict.fromkeys(("quantize", "quantized", "quantization"), ("quantise",)),
    "gpu": ("card",),
    "ckpt": ("checkpoint",),
    "len": ("length",),
    "attn": ("attention",),
    "nan": ("nan", "loss"),
    "ram": ("host", "memory"),
    "seqlen": ("sequence", "length"),
    "ctx": ("context", "length"),
    "bs": ("batch", "size"),
    "dataloader": ("loader", "worker"),
    "fragmentation": ("fragment", "expandable", "segment"),
}
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "er", "es", "ed", "s", "e", "y")
_SHORTEST_STEM = 3
# The usual constants: the saturation of repeated words, and the weight of a text's length.
_SATURATION, _LENGTH = 1.4, 0.6
# A word in the name or title counts more than one in the text.
_TITLE_WEIGHT = 3
# A rule says what to do and can be applied: with similar scores it is the better answer.
_WEIGHTS: dict[Kind, float] = {"rule": 1.3, "key": 1.0, "page": 1.0}
# A question that contains a rule's id or a key is about that one.
_NAME = re.compile(r"[\w.-]*\w")
_NAMED_WEIGHT = 4.0
_LONGEST_QUESTION = 2000
_EXCERPT = 280


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An entry that matches a question; the score is only for ranking."""

    entry: Entry
    score: float

    @property
    def excerpt(self) -> str:
        """The beginning of its text, on one line."""
        text = " ".join(self.entry.text.split())
        return text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 1].rsplit(' ', 1)[0]}…"


def search(question: str, *, limit: int = 10, kinds: tuple[Kind, ...] = ()) -> list[Found]:
    """Return the best matches, best first; only of the given kinds, or of all."""
    scores = _ranking().scores(words_of(question[:_LONGEST_QUESTION]))
    named = frozenset(_NAME.findall(question[:_LONGEST_QUESTION]))
    scored = [
        (one, score * _WEIGHTS[one.kind] * (_NAMED_WEIGHT if one.name in named else 1))
        for one, score in zip(entries(), scores, strict=True)
        if score
    ]
    wanted = [Found(entry=one, score=score) for one, score in scored if not kinds or one.kind in kinds]
    return sorted(wanted, key=lambda found: -found.score)[:limit]


@cache
def _ranking() -> Ranking:
    return Ranking([_words(entry) for entry in entries()])


def _words(entry: Entry) -> list[str]:
    return words_of(f"{entry.name} {entry.title}") * _TITLE_WEIGHT + words_of(entry.text)


def words_of(text: str) -> list[str]:
    """Return the informative words of a text, as stems; `_` and `-` separate words."""
    found = []
    for word in _WORD.findall(text.lower()):
        if word not in _STOP:
            found += [_stem(meant) for meant in _SYNONYMS.get(word, (word,))]
    return found


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word[: -len(ending)]
    return word


class Ranking:
    """An index of texts; each is given as its words, with title words repeated by the caller."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        self._counts = [Counter(text) for text in texts]
        self._lengths = [max(1, len(text)) for text in texts]
        self._mean = sum(self._lengths) / max(1, len(texts))
        self._holders = Counter(word for counts in self._counts for word in counts)

    def scores(self, question: Sequence[str]) -> list[float]:
        """Return the score of each text; 0 without a common word. Texts with more of the rare words rank higher."""
        wanted = list(dict.fromkeys(word for word in question if word in self._holders))
        return [self._score(index, wanted) for index in range(len(self._counts))]

    def _score(self, index: int, wanted: Sequence[str]) -> float:
        counts, length = self._counts[index], self._lengths[index] / self._mean
        held = [word for word in wanted if counts[word]]
        norm = _SATURATION * (1 - _LENGTH + _LENGTH * length)
        total = sum(self._rarity(word) * counts[word] * (_SATURATION + 1) / (counts[word] + norm) for word in held)
        asked = sum(map(self._rarity, wanted))
        return total * sum(map(self._rarity, held)) / asked if held else 0.0

    def _rarity(self, word: str) -> float:
        holders = self._holders[word]
        return log(1 + (len(self._counts) - holders + 0.5) / (holders + 0.5))
