"""The smallest card of the catalogue that a config runs on as it is, whichever card was asked about."""

from __future__ import annotations

from vramwise.errors import VramwiseError
from vramwise.facts.gpus import all_gpus
from vramwise.subject import Subject
from vramwise.types import GpuSpec
from vramwise.variants.attempt import Attempt
from vramwise.variants.search.fitness import weighed

# On another card a run may need less (another precision, other kernels), but not less than this share.
_AT_LEAST = 0.6
# Cards that are tried; the first that has enough memory is nearly always the one.
_MOST_TRIED = 8


def smallest_card(subject: Subject) -> GpuSpec | None:
    """The smallest of the same maker's that the config starts on and fits with its margin; None where none was found."""
    asked = subject.target.gpu
    if asked is None:
        return None
    needed = subject.prediction(on_card=False).needs.device_bytes
    cards = sorted(all_gpus(), key=lambda card: (card.memory_bytes, card.name))
    tried = 0
    seen: set[object] = set()
    for card in cards:
        alike = (card.capability, card.memory_bytes)
        if card.vendor != asked.vendor or card.memory_bytes < _AT_LEAST * needed or alike in seen:
            continue
        seen.add(alike)
        moved = subject.moved_to(card)
        if moved.stops or (card.memory_bytes < needed and moved.run.precision == subject.run.precision):
            continue
        if tried >= _MOST_TRIED:
            return None
        tried += 1
        if _fits(moved):
            return card
    return None


def _fits(subject: Subject) -> bool:
    try:
        prediction = subject.prediction(on_card=False)
    except VramwiseError:
        return False
    return weighed(Attempt(changes=(), run=subject.run, prediction=prediction), None, None).fits
