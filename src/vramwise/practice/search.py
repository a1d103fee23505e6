"""The search: find entries for keywords or a symptom."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from vramwise.practice.entries import Entry, Kind, entries
from vramwise.practice.ranking import Ranking, words_of

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
