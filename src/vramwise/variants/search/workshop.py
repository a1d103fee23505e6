"""The questions of a search: variants written and resolved, their speed, bounds, predictions and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from vramwise.types import Change, RunSpec
from vramwise.variants.attempt import Attempt
from vramwise.variants.speed import Speed


class Workshop(Protocol):
    """Answers questions about variants of one run; the same question always has the same answer.

    A new question raises OutOfEffort if the search has reached its limit.
    """

    def made(self, changes: Sequence[Change]) -> Attempt:
        """Return the run with the changes, written and resolved but not predicted; `refused` is set if that fails."""
        ...

    def speed(self, run: RunSpec) -> Speed | None:
        """Return the predicted speed, or None."""
        ...

    def least_bytes(self, run: RunSpec) -> int:
        """Return a lower bound of the memory of the run, without simulating it."""
        ...

    def room_bytes(self, run: RunSpec) -> int:
        """Return what the run may reserve: the card without memory outside the allocator, or a limit."""
        ...

    def refusal(self, attempt: Attempt) -> str:
        """Return the error of `check` that the changes cause; "" if there is none."""
        ...

    def predicted(self, attempt: Attempt, *, on_card: bool) -> Attempt:
        """Return the attempt with its prediction; `refused` is set if there is none.

        `on_card`: also simulate what happens if it would reserve more than the card has. That is rarely needed to
        reject a variant, and leaving it out halves the time.
        """
        ...
