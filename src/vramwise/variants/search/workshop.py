"""What a search asks of the world: variants written and resolved, their speed, a bound, a prediction, a judgement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from vramwise.types import Change, RunSpec
from vramwise.variants.attempt import Attempt
from vramwise.variants.speed import Speed


class Workshop(Protocol):
    """Answers about variants of one run; the same question has the same answer every time.

    A question that nobody asked before raises OutOfEffort where the search has come to its limit.
    """

    def made(self, changes: Sequence[Change]) -> Attempt:
        """The run with the changes, written by its trainer and resolved, not predicted; `refused` where it cannot."""
        ...

    def speed(self, run: RunSpec) -> Speed | None:
        """How long a step takes."""
        ...

    def least_bytes(self, run: RunSpec) -> int:
        """What the run certainly needs, found without simulating it."""
        ...

    def room_bytes(self, run: RunSpec) -> int:
        """What it may reserve: the card less what lies outside the allocator, or a limit."""
        ...

    def refusal(self, attempt: Attempt) -> str:
        """Which error of `check` the changes bring about; "" where they bring none."""
        ...

    def predicted(self, attempt: Attempt, *, on_card: bool) -> Attempt:
        """The same with its prediction; `refused` where there is none.

        `on_card`: also what becomes of it where it would reserve more than there is; that it does says enough to drop
        it, and takes half the time.
        """
        ...
