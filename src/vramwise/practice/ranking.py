"""Texts ranked by how well they fit a question: BM25, in which a rare word counts more and a long text less.

Words are brought to their stems, and what people call a thing to what the texts call it. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import log

_WORD = re.compile(r"[a-z0-9]+")
# Words that tell nothing apart.
_STOP = frozenset(
    re.findall(
        r"\w+",
        "a about after an and are as at be before but by can cuda do does during each every for from get how i if in "
        "into is it its me my no not of on or out so that the their then there this to too up use using was what "
        "when where which while why will with you your",
    )
)
# What people say → what the texts say. One word may stand for several.
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
# The usual constants: how fast a repeated word stops counting, how much a text's length counts.
_SATURATION, _LENGTH = 1.4, 0.6


def words_of(text: str) -> list[str]:
    """The words that tell texts apart, as stems; `_` and `-` part words."""
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
    """Texts, counted once; each is given as its words, with those of its title repeated by the caller."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        self._counts = [Counter(text) for text in texts]
        self._lengths = [max(1, len(text)) for text in texts]
        self._mean = sum(self._lengths) / max(1, len(texts))
        self._holders = Counter(word for counts in self._counts for word in counts)

    def scores(self, question: Sequence[str]) -> list[float]:
        """How well each text fits; 0 where no word is in it. A text with all of the rare words goes before others."""
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
