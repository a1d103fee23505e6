"""Predicts a run: model and config → ghost run → allocator → whether it fits, and what takes the memory when.

Reads no files: the caller passes the model and the lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from vramwise.allocator.profile import Profile, profile_timeline
from vramwise.allocator.repeats import MOST_EVENTS, unroll, unrolled_length
from vramwise.allocator.settings import parse_settings
from vramwise.errors import VramwiseError
from vramwise.facts.accuracy import ExpectedError, expected_error
from vramwise.facts.context import outside_bytes
from vramwise.models.parameters import parameters
from vramwise.timeline import MemoryReport, Timeline
from vramwise.types import Finding, GpuSpec, ModelSpec, RunSpec
from vramwise.units import GIB
from vramwise.variants.assumptions import Assumption, assumptions_of
from vramwise.variants.batches import rows_unlimited, simulated_batches
from vramwise.variants.bounds import Bounds, bounds, unmodelled
from vramwise.variants.capacity import Drawn, with_mixed_rows, within_capacity
from vramwise.variants.doubts import Doubt, Margin, doubts_of, margin_of
from vramwise.variants.features import features
from vramwise.variants.lengths import Lengths
from vramwise.variants.simulate import ghost_of, report_of
from vramwise.variants.simulations import Simulations
from vramwise.variants.unread import code_doubts
from vramwise.variants.verdict import Verdict, fits_with_margin, verdict_of
from vramwise.variants.versions import version_doubts

# No run exceeds these numbers: torch itself counts rows in 31 bits.
_LARGEST_NUMBER = 2**31 - 1
_COUNTED = {
    **dict.fromkeys(("micro_batch_size", "gradient_accumulation_steps", "sequence_len"), _LARGEST_NUMBER),
    **dict.fromkeys(("eval_batch_size", "eval_sequence_len", "lora_r"), _LARGEST_NUMBER),
    "gpus": 2**18,  # more than any cluster has; sharded tensors are divided rank by rank
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted memory of a run.

    `report`: the run on the card, or under the limit. `needs`: the run with unlimited memory.
    """

    run: RunSpec
    model: ModelSpec
    short_timeline: Timeline
    needs: MemoryReport
    report: MemoryReport
    limit_bytes: int | None
    assumed: tuple[Assumption, ...]
    # True: every row is assumed to have the maximum length, although rows follow the data.
    full_rows: bool = False
    # No row lengths are known, whether widths follow them or not.
    lengths_unknown: bool = False
    # The run over drawn sequences of mixed rows, if these might not fit.
    mixed: tuple[Drawn, ...] = ()
    # The run with as much more memory as its margin allows for, if it runs out of memory without.
    with_less_need: MemoryReport | None = None
    # What is not known and whose margin follows from the figure; see `doubts`.
    known_doubts: tuple[Doubt, ...] = ()
    # The errors of `check` that keep the run from starting, or make it differ from what the file describes.
    stops: tuple[Finding, ...] = ()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions behind the prediction, as sentences."""
        return tuple(map(str, self.assumed))

    def assuming(self, *texts: str, kind: Literal["source", "run"] = "run") -> Prediction:
        """Return the prediction with more assumptions."""
        return replace(self, assumed=(*self.assumed, *(Assumption(text, kind) for text in texts)))

    @property
    def timeline(self) -> Timeline:
        """Every event of the run in order; repeats are expanded, up to a million events."""
        return unroll(self.short_timeline, MOST_EVENTS)

    def lean(self) -> Prediction:
        """Return the prediction without the run's events, which take megabytes, for lists of many."""
        nothing = Timeline(events=[], tags=(), phases=(), repeats=())
        return replace(self, short_timeline=nothing, mixed=tuple([Drawn(one.report, nothing) for one in self.mixed]))

    @property
    def mixed_bytes(self) -> tuple[int, ...]:
        """What the run reserves over each drawn sequence of mixed rows."""
        return tuple([one.report.highest_reserved_bytes for one in self.mixed])

    @property
    def decisive(self) -> MemoryReport:
        """The run with unlimited memory that the verdict is about: mixed rows where these need most, or full ones."""
        reports = (self.needs, *(one.report for one in self.mixed))
        return max(reports, key=lambda report: report.highest_reserved_bytes)

    @property
    def shown(self) -> MemoryReport:
        """The report that all interfaces show: the peak with unlimited memory, and the outcome on the card."""
        return replace(
            self.decisive,
            experts_bytes=self.needs.experts_bytes,
            engine_weights_bytes=self.needs.engine_weights_bytes,
            out_of_memory=self.report.out_of_memory,
            retries=self.report.retries,
            capacity_bytes=self.capacity_bytes,
            mixed_rows_bytes=max(self.mixed_bytes, default=0),
        )

    @property
    def expected_error(self) -> ExpectedError:
        """The error that similar measured runs showed."""
        return expected_error(features(self.run, self.model), [one.name for one in unmodelled(self.run, self.model)])

    @property
    def bounds(self) -> Bounds | None:
        """The range of the run, if it has features that the prediction does not include."""
        return bounds(self.run, self.model, self.needs)

    def verdict(self, rows_up_to: int | None = None) -> Verdict:
        """Return whether it fits, as a kind and figures."""
        return verdict_of(self, rows_up_to)

    @property
    def gpu(self) -> GpuSpec | None:
        """The target card."""
        return self.run.target.gpu

    @property
    def capacity_bytes(self) -> int | None:
        """What the allocator may reserve: the card without memory outside the allocator, or the limit if lower."""
        return _capacity(self.run, self.report.outside_bytes, self.limit_bytes)

    @property
    def fits_by_emptying(self) -> bool:
        """Whether it runs only because the allocator releases cached memory: it would reserve more than there is."""
        capacity = self.capacity_bytes
        return (
            self.report.out_of_memory is None and capacity is not None and self.needs.highest_reserved_bytes > capacity
        )

    @property
    def fits(self) -> bool | None:
        """Whether it runs: False if it does not start, None if rows have no limit, else whether memory is enough."""
        if self.stops:
            return False
        return None if self.memory_fits and self.rows_unlimited else self.memory_fits

    @property
    def memory_fits(self) -> bool | None:
        """Whether memory is sufficient, with its margin; None without a card, or if the margin leaves it open."""
        return fits_with_margin(self)

    @property
    def most_bytes(self) -> int:
        """The highest reserved memory, as far as it is known."""
        upper = None if self.bounds is None else self.bounds.upper_bytes
        return max(self.needs.highest_reserved_bytes, upper or 0, *self.mixed_bytes)

    @property
    def least_bytes(self) -> int:
        """The lowest reserved memory that the run may need, as far as it is known."""
        return self.needs.highest_reserved_bytes if self.bounds is None else self.bounds.lower_bytes

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """What is not known of the run and widens the margin of its verdict."""
        return (*self.known_doubts, *doubts_of(self.run, self.model))

    @property
    def rows_unlimited(self) -> bool:
        """Whether nothing known limits the rows, so that their lengths decide whether it fits."""
        return self.full_rows and rows_unlimited(self.run)

    @property
    def margin(self) -> Margin:
        """The shares of the figure by which the run may need more or less."""
        return margin_of(self.doubts)

    @property
    def judged_bytes(self) -> int:
        """The memory compared with the card: the upper bound, or the lower one if even that is too much."""
        return self.least_bytes if self.memory_fits is False else self.most_bytes


def _capacity(run: RunSpec, outside: int, limit_bytes: int | None) -> int | None:
    room = None if run.target.gpu is None else run.target.gpu.memory_bytes - outside
    return min([bound for bound in (room, limit_bytes) if bound is not None], default=None)


def predict_run(
    run: RunSpec,
    model: ModelSpec,
    *,
    lengths: Lengths | None = None,
    eval_lengths: Lengths | None = None,
    steps: int | None = None,
    limit_bytes: int | None = None,
    simulations: Simulations | None = None,
    on_card: bool = True,
) -> Prediction:
    """Run the ghost run and the allocator for a resolved config; reuses results cached in `simulations`.

    With `on_card=False`, it is not simulated what happens to a run that would reserve more than the card has: `fits`
    stays None unless its tensors alone are too much. Raises VramwiseError for absurd sizes.
    """
    _refuse_absurd(run)
    simulations = simulations or Simulations()
    shapes, evals, steps, shortened = simulated_batches(run, model, lengths, eval_lengths, steps)
    outside = outside_bytes(run)
    capacity = _capacity(run, outside, limit_bytes)
    timeline, assumed = ghost_of(simulations, run, model, shapes, evals, steps, capacity)
    settings = parse_settings(run.allocator.settings, run.target.torch)
    needs = report_of(simulations, timeline, settings, run.target.torch, outside_bytes=outside)
    needs = replace(
        needs, experts_bytes=_experts_bytes(run, model), engine_weights_bytes=_engine_weights_bytes(run, model)
    )
    prediction = Prediction(
        run=run,
        model=model,
        short_timeline=timeline,
        needs=needs,
        report=needs,
        limit_bytes=limit_bytes,
        assumed=tuple(assumptions_of(run, model, lengths, eval_lengths)),
        full_rows=lengths is None and not run.shapes.constant_shapes and not run.shapes.sample_packing,
        lengths_unknown=lengths is None,
    )
    tokens = max((shape.rows * shape.width for shape in shapes), default=0)
    doubts = [
        *_unlimited(prediction),
        *version_doubts(run, model, needs, tokens),
        *code_doubts(run, model, needs),
    ]
    prediction = replace(prediction, known_doubts=tuple(doubts))
    counted = _counted(prediction.assuming(*shortened, *assumed, *needs.assumptions, *_unshown(timeline)))
    return with_mixed_rows(within_capacity(counted, simulations), simulations) if on_card else counted


def _unlimited(prediction: Prediction) -> Iterator[Doubt]:
    """Yield that nothing limits the rows: a long one decides, by any amount."""
    if prediction.rows_unlimited:
        yield Doubt(kind="rows", text=prediction.run.origins["sequence_len"].why)


def _experts_bytes(run: RunSpec, model: ModelSpec) -> int:
    """Return the memory of experts that are not quantised."""
    if not model.num_experts or run.loading.expert_quantization is not None:
        return 0
    size = 4 if run.precision.weights_dtype == "fp32" else 2
    return size * sum(parameter.numel for parameter in parameters(model) if parameter.kind == "experts")


def _engine_weights_bytes(run: RunSpec, model: ModelSpec) -> int:
    """Return the memory of the engine's own weights: in 16 bits, or quantised to 4 bits as the policy's are."""
    if run.objective.engine != "beside" or run.loading.quantization not in (None, "4bit"):
        return 0
    packed = run.loading.quantization == "4bit"
    return (
        sum(one.numel // 2 if packed and one.kind == "linear" else 2 * one.numel for one in parameters(model))
        // run.sharding.tensor_parallel_size
    )


def _refuse_absurd(run: RunSpec) -> None:
    """Raise VramwiseError for numbers that no run has and that would only fill this machine's memory."""
    for name, most in _COUNTED.items():
        value = run.value(name)
        if value is not None and value > most:
            shown = f"{value:,}" if value.bit_length() < 100 else "a number of more than 30 digits"
            raise VramwiseError(f"{name} is {shown}: the largest supported value is {most:,}")


def _counted(prediction: Prediction) -> Prediction:
    """Raise VramwiseError, or add an assumption if there is a capacity, if even unlimited memory was exceeded."""
    ended = prediction.needs.out_of_memory
    if ended is None:
        return prediction
    run = prediction.run
    said = (
        f"micro_batch_size {run.batch.micro_batch_size:,} × sequence_len {run.shapes.sequence_len:,} on "
        f"{prediction.model.name}: "
        f"{ended.label or 'one allocation'} asks for {ended.requested_bytes // GIB:,} GiB, more than any machine has; "
        "the prediction stops there"
    )
    if prediction.capacity_bytes is None:
        raise VramwiseError(said)
    return prediction.assuming(said)


def _unshown(timeline: Timeline) -> Iterator[str]:
    total = unrolled_length(len(timeline.events), timeline.repeats)
    if total > MOST_EVENTS:
        yield f"the run has {total:,} events: charts and snapshots omit repeated steps and micro-steps"


def profile_of(prediction: Prediction) -> Profile:
    """Return the profile of the run that the verdict is about, with unlimited memory, for charts."""
    run = prediction.run
    settings = parse_settings(run.allocator.settings, run.target.torch)
    outside = prediction.needs.outside_bytes
    decisive = prediction.decisive
    timeline = next((one.timeline for one in prediction.mixed if one.report is decisive), prediction.short_timeline)
    events = unroll(timeline, MOST_EVENTS)
    return profile_timeline(events, settings, torch=run.target.torch, outside_bytes=outside)
