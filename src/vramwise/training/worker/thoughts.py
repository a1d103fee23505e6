"""Thoughts in answers, as LLaMA-Factory's templates of reasoning models treat them (data/template.py of 0.9.5)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Turn = tuple[str, str]  # what is asked, and the answer
Pair = tuple[list[int], list[int]]  # the same in tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Thoughts:
    """The words around a thought, and what becomes of thoughts."""

    opening: str
    closing: str
    enabled: bool | None  # False: none is shown; None or False: an empty one is not learnt
    last_only: bool  # those of earlier turns are dropped

    @classmethod
    def of(cls, block: Mapping[str, Any]) -> Thoughts | None:
        """For a dataset's block; None where its template knows no thoughts."""
        words = block["template"]["thought"]
        if words is None:
            return None
        return cls(opening=words[0], closing=words[1], enabled=block["thinks"], last_only=block["last_turn_only"])

    def as_shown(self, turns: Sequence[Turn]) -> list[Turn]:
        """The turns without the thoughts that are dropped."""
        last = len(turns) - 1
        return [
            (asked, self._without(answer) if self.enabled is False or (self.last_only and number != last) else answer)
            for number, (asked, answer) in enumerate(turns)
        ]

    def with_empty_ones(self, turns: Sequence[Turn], pairs: Sequence[Pair], tokenizer: Any) -> list[Pair]:
        """An empty thought before each answer that has none: learnt where thinking is on, else part of the question."""
        empty = tokenizer.encode(self.opening + self.closing, add_special_tokens=False)
        found = list(pairs)
        for number in range(len(pairs) - 1 if self.last_only else 0, len(pairs)):
            source, target = found[number]
            if not self._thinks(turns[number][1]):
                found[number] = (source, [*empty, *target]) if self.enabled else ([*source, *empty], target)
        return found

    def _thinks(self, answer: str) -> bool:
        return self.opening.strip() in answer or self.closing.strip() in answer

    def _without(self, answer: str) -> str:
        thought = f"{re.escape(self.opening)}(.*?){re.escape(self.closing)}"
        return re.sub(thought, "", answer, flags=re.DOTALL).lstrip("\n")
