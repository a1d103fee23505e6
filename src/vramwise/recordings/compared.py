"""A predicted run against a recorded one, request by request: where the two first differ.

Of the prediction, the last step counts: by then the run repeats itself. It is found in the recording by its sizes, so
the recording may have any number of steps, and may start and end anywhere. Requests below `LEAST_BYTES` are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from vramwise.errors import VramwiseError
from vramwise.timeline import Action, Timeline
from vramwise.units import MIB

LEAST_BYTES = MIB
# So many requests in a row show where a step is in the recording, and that two runs agree again.
_ALIKE = 6
# A last step that the recording has less of than this share is left out.
_WHOLE = 0.5
# How far ahead the place is looked for where the two agree again.
_AHEAD = 200


class Request(NamedTuple):
    """One allocation of a timeline: its size, and what it is for."""

    size_bytes: int
    phase: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Requests of the step that differ. `number`: how many predicted requests of the step come before."""

    number: int
    predicted: tuple[Request, ...]
    recorded: tuple[Request, ...]

    def turned(self, before: int) -> Difference:
        """Return the same difference of a walk backward from `before` as one of a walk forward."""
        number = before - self.number - len(self.predicted)
        return Difference(number=number, predicted=self.predicted[::-1], recorded=self.recorded[::-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The last predicted step in the recording. `step`: its number; `requests`: how many it has; `found`: how many of
    them the recording has in this order."""

    step: int
    requests: int
    found: int
    differences: tuple[Difference, ...]


def compare(predicted: Timeline, recorded: Timeline) -> Comparison:
    """Compare the last step of a prediction with a recording; the repeats of both must be expanded.

    Raises VramwiseError if nothing in the recording resembles the step.
    """
    step = max((phase.step for phase in predicted.phases if phase.name != "eval"), default=0)
    wanted, there = _requests(predicted, step), _requests(recorded, None)
    anchor = _anchor(_sizes(wanted), _sizes(there))
    if anchor is None:
        raise VramwiseError(
            f"no {_ALIKE} requests in a row of the predicted step are in the recording: it is of another model, batch "
            "size or row length, or has no training step"
        )
    at, place = anchor
    before = [one.turned(at) for one in _differences(wanted[:at][::-1], there[:place][::-1])]
    after = [replace(one, number=one.number + at) for one in _differences(wanted[at:], there[place:])]
    differences = (*reversed(before), *after)
    missing = sum(len(one.predicted) for one in differences)
    return Comparison(step=step, requests=len(wanted), found=len(wanted) - missing, differences=differences)


def _requests(timeline: Timeline, step: int | None) -> list[Request]:
    """Return the requests of one step without its evaluation, or with None of the whole timeline."""
    phase, inside, found = "", step is None, []
    for event in timeline.events:
        if event.action == Action.PHASE:
            entered = timeline.phases[event.tag]
            phase, inside = entered.name, step is None or (entered.step == step and entered.name != "eval")
        elif inside and event.action == Action.ALLOC and event.size_bytes >= LEAST_BYTES:
            found.append(Request(event.size_bytes, phase, timeline.tags[event.tag].label))
    return found


def _sizes(requests: Sequence[Request]) -> list[int]:
    return [request.size_bytes for request in requests]


def _anchor(wanted: Sequence[int], there: Sequence[int]) -> tuple[int, int] | None:
    """Return a place in the step, and the same place in the recording's last whole step, or in its last one.

    Layers repeat, so only requests in a row count that are in the step once; the recording has them once a step.
    """
    places, others = _places(wanted), _places(there)
    shared = {row: others[row] for row, found in places.items() if len(found) == 1 and row in others}
    if not shared:
        return None
    steps = Counter(map(len, shared.values())).most_common(1)[0][0]
    row = next(row for row, found in shared.items() if len(found) == steps)
    (at,), found = places[row], shared[row]
    if len(found) > 1 and len(there) - found[-1] < _WHOLE * (found[-1] - found[-2] - at):
        return at, found[-2]
    return at, found[-1]


def _places(sizes: Sequence[int]) -> dict[tuple[int, ...], list[int]]:
    found: dict[tuple[int, ...], list[int]] = {}
    for at in range(len(sizes) - _ALIKE + 1):
        found.setdefault(tuple(sizes[at : at + _ALIKE]), []).append(at)
    return found


def _differences(wanted: Sequence[Request], there: Sequence[Request]) -> Iterator[Difference]:
    """Yield where the two differ, until the step ends."""
    at = place = 0
    while at < len(wanted) and place < len(there):
        if wanted[at].size_bytes == there[place].size_bytes:
            at, place = at + 1, place + 1
            continue
        ahead, aside = wanted[at : at + _AHEAD], there[place : place + _AHEAD]
        more, others = _until_alike(_sizes(ahead), _sizes(aside))
        yield Difference(number=at, predicted=tuple(ahead[:more]), recorded=tuple(aside[:others]))
        at, place = at + more, place + others
    if at < len(wanted):
        yield Difference(number=at, predicted=tuple(wanted[at:]), recorded=())


def _until_alike(wanted: Sequence[int], there: Sequence[int]) -> tuple[int, int]:
    """Return how many requests of both come before the two agree again; as many of both if they do not."""
    for skipped in range(1, len(wanted) + len(there)):
        for more in range(max(0, skipped - len(there)), min(skipped, len(wanted)) + 1):
            others = skipped - more
            ahead = wanted[more : more + _ALIKE]
            near = len(ahead) == _ALIKE or others <= len(wanted) + _ALIKE  # few requests are alike by chance
            if ahead and near and ahead == there[others : others + len(ahead)]:
                return more, others
    return len(wanted), min(len(wanted), len(there))
