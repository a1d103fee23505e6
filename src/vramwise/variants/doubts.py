"""What is not known of a run, and how far off its figure may therefore be: the margin of a verdict.

This is the one place for margins. To add one, write a function that yields a `Doubt` for a run and its model, and name
it in `_SOURCES`. Every verdict, on every interface, then takes it into account and names its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vramwise.types import ModelSpec, RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """One thing that is not known of a run.

    `kind`: its subject, such as "model", "version" or "card". `text`: a phrase that names it ("model type qwen5,
    treated as llama"). `more`, `less`: the shares of the figure by which the run may need more or less because of it.
    """

    kind: str
    text: str
    more: float = 0.0
    less: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """The shares of a figure by which a run may need more or less, all doubts together."""

    more: float = 0.0
    less: float = 0.0


def doubts_of(run: RunSpec, model: ModelSpec) -> tuple[Doubt, ...]:
    """Return what is not known of a run, the largest doubt first."""
    found = [doubt for source in _SOURCES for doubt in source(run, model)]
    return tuple(sorted(found, key=lambda doubt: -max(doubt.more, doubt.less)))


def margin_of(doubts: Sequence[Doubt]) -> Margin:
    """Return the margin of several doubts together: as independent errors, they add up as squares do."""
    more, less = (sum(getattr(one, side) ** 2 for one in doubts) ** 0.5 for side in ("more", "less"))
    return Margin(more=more, less=min(less, 1.0))


def _of_model(run: RunSpec, model: ModelSpec) -> Iterator[Doubt]:
    from vramwise.variants.unknown_models import model_doubts  # builds on this module

    yield from model_doubts(run, model)


_SOURCES: tuple[Callable[[RunSpec, ModelSpec], Iterator[Doubt]], ...] = (_of_model,)
