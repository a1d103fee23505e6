"""What a predicted run does on its card: whether released caches help, and what rows of mixed lengths take.

Full rows are not the worst case for runs whose widths follow data that nobody described: blocks cached for narrow
batches do not hold wider ones. So such a run is simulated again over fixed, drawn sequences of rows, the longest of
them after shorter ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from vramwise.allocator.settings import AllocatorSettings, parse_settings
from vramwise.allocator.variables import EXPANDABLE
from vramwise.facts.context import outside_bytes
from vramwise.ghost.loops.batches import rows_a_sample
from vramwise.timeline import MemoryReport, Timeline
from vramwise.types import GpuSpec, ModelSpec, RunSpec
from vramwise.units import gib
from vramwise.variants.batches import eval_shapes, train_shapes
from vramwise.variants.doubts import Doubt
from vramwise.variants.lengths import Lengths
from vramwise.variants.simulate import ghost_of, report_of
from vramwise.variants.simulations import Simulations

if TYPE_CHECKING:
    from vramwise.variants.prediction import Prediction

# Full rows that take less than this part of the card leave room for whatever mixed rows add: caches are released first.
_FAR_BELOW = 2
# Rows shorter than this part of the longest ones are not drawn: nobody sets such a limit for shorter data.
SHORTEST_PART = 8
# Each draw raises lengths between the shortest and the longest to a power: evenly spread rows, and mostly short ones.
_SPREADS = (1, 3)
_BATCHES = 4
_GOLDEN = 0.6180339887498949
# A drawn sequence that leaves more of the card free decides alone: the runs below exceeded it by at most 20 %.
_CLEAR = 1.25
# What longer runs may add at least: over 90 simulated runs of nine configs, with other draws of 24 batches and more, 85
# reserved at most the highest of full and drawn rows plus the spread of these, or plus this share if that is more.
_LONGER = 0.03
# Gradients of earlier micro-batches matter, but more of them than this only cost time.
_MOST_ACCUMULATED = 2
# More rows than fit any card; their lengths alone would take time.
_MOST_ROWS = 65_536


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


def follows_data(run: RunSpec) -> bool:
    """Return whether mixed rows may reserve more than full ones.

    Expandable segments join neighbouring blocks, so there the widest batch decides: measured differences were below
    0.3 %. Completions differ in length anyway. Flash attention skips padding: there sizes follow the data although all
    rows are padded to one width (two measured runs took 3.1 and 9.0 % more than full rows, with expandable segments).
    """
    if run.shapes.sample_packing or run.objective.completion_len is not None:
        return False
    if run.shapes.pad_to_sequence_len:
        return "flash" in run.kernels.attn_implementation
    return not run.shapes.constant_shapes and EXPANDABLE not in run.allocator.settings


class Drawn(NamedTuple):
    """The run over one drawn sequence of rows."""

    report: MemoryReport
    timeline: Timeline


def mixed_runs(
    run: RunSpec, model: ModelSpec, simulations: Simulations, capacity_bytes: int, more: float = 0.0
) -> tuple[Drawn, ...]:
    """Return the run over each drawn sequence of rows, up to the first that decides.

    `more`: the share by which a sequence must stay below the capacity for the next one to matter.
    """
    run = run.changed(gradient_accumulation_steps=min(run.batch.gradient_accumulation_steps, _MOST_ACCUMULATED))
    if run.batch.micro_batch_size * _BATCHES > _MOST_ROWS:
        return ()
    settings, outside = parse_settings(run.allocator.settings, run.target.torch), outside_bytes(run)
    steps = _BATCHES // run.batch.gradient_accumulation_steps
    found = []
    for spread in _SPREADS:
        shapes = train_shapes(run, drawn(run, spread))
        timeline, _ = ghost_of(simulations, run, model, shapes, eval_shapes(run, None), steps, capacity_bytes)
        report = report_of(simulations, timeline, settings, run.target.torch, outside_bytes=outside)
        found.append(Drawn(report, timeline))
        reserved = report.highest_reserved_bytes
        if reserved * (1 + more) > capacity_bytes or reserved * _CLEAR < capacity_bytes:
            break
    return tuple(found)


def drawn(run: RunSpec, spread: int) -> Lengths:
    """Return drawn lengths of rows, always the same; the longest row that the settings allow comes last."""
    longest = run.shapes.sequence_len
    shortest = max(1, longest // SHORTEST_PART)
    pairs = rows_a_sample(run) == 2 or run.objective.kind == "kto"
    count = _BATCHES * run.batch.micro_batch_size * (2 if pairs else 1)
    # multiples of the golden ratio, modulo 1, are very evenly distributed
    shares = [(number * _GOLDEN % 1) ** spread for number in range(spread, count + spread - 1)]
    tokens = [shortest + round((longest - shortest) * share) for share in shares]
    return Lengths(tokens=[*tokens, longest], pairs=pairs)


def rows_doubt(run: RunSpec, reserved: Sequence[int]) -> Doubt:
    """Return the doubt about unknown row lengths; its margin is the spread of what was simulated, at least _LONGER."""
    least, most = min(reserved), max(reserved)
    ends = gib(most) if gib(least) == gib(most) else f"{gib(least)} to {gib(most)}"
    return Doubt(
        kind="rows",
        text=f"row lengths: simulated with full and mixed rows up to {run.shapes.sequence_len:,} tokens ({ends})",
        more=max(_LONGER, most / least - 1),
    )
