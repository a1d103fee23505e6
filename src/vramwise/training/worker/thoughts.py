"""Thoughts in answers, as LLaMA-Factory's templates of reasoning models handle them (data/template.py of 0.9.5)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Turn = tuple[str, str]  # question and answer
Pair = tuple[list[int], list[int]]  # the same in tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Thoughts:
    """The delimiters of a thought, and how thoughts are handled."""

    opening: str
    closing: str
    enabled: bool | None  # False: none is shown; None or False: an empty one is not trained on
    last_only: bool  # thoughts of earlier turns are dropped

    @classmethod
    def of(cls, block: Mapping[str, Any]) -> Thoughts | None:
        """Return the handling for a dataset's block; None if its template has no thoughts."""
        words = block["template"]["thought"]
        if words is None:
            return None
        return cls(opening=words[0], closing=words[1], enabled=block["thinks"], last_only=block["last_turn_only"])

    def as_shown(self, turns: Sequence[Turn]) -> list[Turn]:
        """Return the turns without dropped thoughts."""
        last = len(turns) - 1
        return [
            (asked, self._without(answer) if self.enabled is False or (self.last_only and number != last) else answer)
            for number, (asked, answer) in enumerate(turns)
        ]

    def with_empty_ones(self, turns: Sequence[Turn], pairs: Sequence[Pair], tokenizer: Any) -> list[Pair]:
        """Add an empty thought before each answer without one.

        It is trained on if thinking is on; otherwise it is part of the question.
        """
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
