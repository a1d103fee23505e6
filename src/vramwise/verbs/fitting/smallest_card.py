"""The smallest card of the catalogue that a config runs on unchanged."""

from __future__ import annotations

from collections.abc import Hashable

from vramwise.errors import VramwiseError
from vramwise.facts.gpus import discrete_gpus
from vramwise.facts.torch import oldest_card
from vramwise.ghost.hardware import hardware_of
from vramwise.opening.subject import Subject
from vramwise.types import GpuSpec
from vramwise.variants.attempt import Attempt
from vramwise.variants.effort import CARDS
from vramwise.variants.prediction import Prediction
from vramwise.variants.search.book import settings_of
from vramwise.variants.search.result import margin_of, weighed


def smallest_card(subject: Subject) -> GpuSpec | None:
    """Return the smallest card of the same vendor on which the config starts and fits with its margin, or None.

    Boards that share memory with the host are left out, and so are cards that torch's default build does not support.
    The memory of a run is predicted once for each resolved config and attention hardware, and again for the answer. A
    run without an upper bound fits no card for certain. If the effort is spent, cards that need a new prediction are
    skipped.
    """
    asked, since = subject.target.gpu, subject.effort.spent
    first = None if asked is None else _needed_bytes(subject)
    if asked is None or first is None:
        return None
    oldest = oldest_card(subject.target.torch)
    needed: dict[Hashable, int | None] = {_alike(subject, asked): first}
    for card in sorted(discrete_gpus(), key=lambda card: (card.memory_bytes, card.name)):
        if card.vendor != asked.vendor or (card.capability or oldest) < oldest:
            continue
        moved = subject.moved_to(card)
        if moved.stops:
            continue
        alike = _alike(moved, card)
        if alike not in needed:
            if not subject.effort.leaves(CARDS, since):
                continue
            needed[alike] = _needed_bytes(moved)
        enough = needed[alike]
        if enough is None or card.memory_bytes < enough:
            continue
        if _fits(moved):
            return card
        needed[alike] = _needed_bytes(moved, on_card=True)  # rows of mixed lengths need more
    return None


def _alike(subject: Subject, card: GpuSpec) -> Hashable:
    """Return what decides the memory of a run: its settings and the card's attention kernels."""
    return settings_of(subject.run), hardware_of(card, subject.run.target.torch).attention


def _needed_bytes(subject: Subject, *, on_card: bool = False) -> int | None:
    """Return the memory that a card must have: the reserved maximum, memory outside the allocator, and the margin.

    None if it is not predicted or has no upper bound.
    """
    prediction = _predicted(subject, on_card=on_card)
    if prediction is None or (prediction.bounds is not None and prediction.bounds.upper_bytes is None):
        return None
    unfollowed = prediction.most_bytes - prediction.needs.highest_reserved_bytes
    return prediction.needs.device_bytes + unfollowed + margin_of(prediction, None)


def _fits(subject: Subject) -> bool:
    prediction = _predicted(subject, on_card=True)
    return weighed(Attempt(changes=(), run=subject.run, prediction=prediction), None, None).fits


def _predicted(subject: Subject, *, on_card: bool) -> Prediction | None:
    try:
        return subject.prediction(on_card=on_card)
    except VramwiseError:
        return None
