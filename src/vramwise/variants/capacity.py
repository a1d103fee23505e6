"""What a predicted run does on its card: whether released caches help, and what mixed rows take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vramwise.allocator.settings import AllocatorSettings, parse_settings
from vramwise.timeline import MemoryReport
from vramwise.types import GpuSpec
from vramwise.variants.mixed_rows import follows_data, mixed_runs, rows_doubt
from vramwise.variants.simulate import report_of
from vramwise.variants.simulations import Simulations

if TYPE_CHECKING:
    from vramwise.variants.prediction import Prediction

# Full rows that take less than this part of the card leave room for whatever mixed rows add: caches are released first.
_FAR_BELOW = 2


def within_capacity(prediction: Prediction, simulations: Simulations) -> Prediction:
    """Simulate the run on the card if it might not fit, to see whether released caches and retries help."""
    run, capacity = prediction.run, prediction.capacity_bytes
    settings = parse_settings(run.allocator.settings, run.target.torch)
    if capacity is None:
        return prediction
    if prediction.needs.highest_reserved_bytes <= capacity and not _counts_whole_requests(prediction, settings):
        return prediction
    report = _limited(prediction, simulations)
    less = prediction.margin.less
    tensors = prediction.needs.highest_allocated_bytes * (1 - less)
    # Tensors alone that need more than the card cannot fit; otherwise the allocator decides.
    asks = report.out_of_memory is not None and 0 < less < 1 and tensors <= capacity
    news = [note for note in report.assumptions if note not in prediction.assumptions]
    more = _limited(prediction, simulations, 1 / (1 - less)) if asks else None
    return replace(prediction, report=report, with_less_need=more).assuming(*news)


def _limited(prediction: Prediction, simulations: Simulations, more: float = 1.0) -> MemoryReport:
    """Return the run under the limit and on the card. `more`: times the memory that it may reserve there."""
    run, outside, limit = prediction.run, prediction.needs.outside_bytes, prediction.limit_bytes
    room = None if prediction.gpu is None else int((prediction.gpu.memory_bytes - outside) * more) + outside
    return report_of(
        simulations,
        prediction.short_timeline,
        parse_settings(run.allocator.settings, run.target.torch),
        run.target.torch,
        total_bytes=room,
        limit_bytes=None if limit is None else int(limit * more),
        outside_bytes=outside,
    )


def with_mixed_rows(prediction: Prediction, simulations: Simulations) -> Prediction:
    """Simulate mixed rows if full rows run and need so much of the card that mixed ones might not fit."""
    capacity = prediction.capacity_bytes
    if capacity is None or not prediction.lengths_unknown or not follows_data(prediction.run):
        return prediction
    near = prediction.needs.highest_reserved_bytes * _FAR_BELOW > capacity
    if not near or prediction.report.out_of_memory is not None:
        return prediction
    simulations.effort.predicted()  # further predictions, by which efforts are judged, make no draws
    mixed = mixed_runs(prediction.run, prediction.model, simulations, capacity)
    prediction = replace(prediction, mixed=mixed)
    doubt = rows_doubt(prediction.run, (prediction.needs.highest_reserved_bytes, *prediction.mixed_bytes))
    return replace(prediction, known_doubts=(doubt, *prediction.known_doubts))


def _counts_whole_requests(prediction: Prediction, settings: AllocatorSettings) -> bool:
    """Return whether torch may refuse a request although there is room.

    Against its own limit, torch counts a request in full, although an expandable segment needs only the part beyond its
    last free block. The card counts only that part.
    """
    return settings.expandable_segments and (prediction.limit_bytes is not None or settings.memory_fraction < 1)


def on_card(prediction: Prediction, gpu: GpuSpec) -> Prediction:
    """Return the prediction for another card: the same requests (except workspaces), another capacity."""
    run = replace(prediction.run, target=replace(prediction.run.target, gpu=gpu))
    known = tuple([doubt for doubt in prediction.known_doubts if doubt.kind != "rows" or not doubt.more])
    moved = replace(prediction, run=run, report=prediction.needs, with_less_need=None, mixed=(), known_doubts=known)
    simulations = Simulations()
    return with_mixed_rows(within_capacity(moved, simulations), simulations)
