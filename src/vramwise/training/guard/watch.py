"""Judges the samples of a run as they come, and reports each problem once, with the name of its pattern.

Pure: no files, no clock, no torch. A warning says what was seen and what follows from it; `see` lists the config rules
(`vramwise explain ID`) that explain more. Differences too small to matter on the card are not reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from vramwise.recordings.growth import QUARTERS, Trend, steady_climb
from vramwise.training.guard.samples import PREDICTED_PHASES, Reading, Sample
from vramwise.training.plan import GuardThresholds, PredictedMemory
from vramwise.units import MIB, a_step, gib, mib

# The patterns that the guard reports, and the config rules about the same problem.
PATTERNS: Mapping[str, tuple[str, ...]] = {
    "reserved-jumps-at-eval": ("eval-batch-differs", "allocator-not-expandable"),
    "allocated-grows": (),
    "reserved-grows": ("unpadded-sequences", "allocator-not-expandable"),
    "allocator-retries": ("allocator-not-expandable",),
    "memory-fragmented": ("allocator-not-expandable", "unpadded-sequences"),
    "batch-longer-than-declared": (),
    "above-prediction": (),
}
# Less than this share of the card, or this size if the card is unknown, is not worth a warning.
_MATTERS_SHARE = 0.01
_MATTERS_BYTES = 256 * MIB
# Optimizer state appears in the first step (after a resume too), so growth counts from the third.
_SETTLING_STEPS = 2


class Growth:
    """The last `window` values of one figure, one per step; `vramwise.recordings.growth` judges them."""

    def __init__(self, window: int) -> None:
        self._values: deque[tuple[int, int]] = deque(maxlen=max(window, 2 * QUARTERS))

    def see(self, step: int, value_bytes: int) -> Trend | None:
        """Add a value; return the trend if the full window climbs steadily, else None."""
        if self._values and step <= self._values[-1][0]:
            self._values.clear()  # the run went back to a checkpoint
        self._values.append((step, value_bytes))
        if len(self._values) < (self._values.maxlen or 0):
            return None
        return steady_climb(tuple(self._values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """One problem that the guard noticed."""

    rule: str
    step: int
    message: str

    @property
    def see(self) -> tuple[str, ...]:
        """Config rules about the same problem."""
        return PATTERNS[self.rule]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the run is compared with. `peaks_per_phase`: the counters are reset at the end of each phase."""

    device_bytes: int | None = None
    max_steps: int | None = None
    max_width: int | None = None
    predicted: PredictedMemory | None = None
    peaks_per_phase: bool = False
    thresholds: GuardThresholds = field(default_factory=GuardThresholds)


def judge(samples: Iterable[Sample], expected: Expected) -> list[Warned]:
    """Return all warnings of a whole series."""
    watch = Watch(expected)
    return [warned for sample in samples for warned in watch.see(sample)]


class Watch:
    """Judges one attempt: sees samples in order, and reports each problem once."""

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self._said: set[str] = set()
        self._first_step: int | None = None
        self._retries: int | None = None
        self._high_allocated = 0
        self._high_reserved_in_training = 0
        self._evaluated = False
        window = expected.thresholds.growth_steps
        self._allocated, self._reserved = Growth(window), Growth(window)

    def see(self, sample: Sample) -> list[Warned]:
        """Add one sample; return the new warnings."""
        self._high_allocated = max(self._high_allocated, sample.reading.peak_allocated_bytes)
        new = []
        for rule, message in self._judge(sample):
            if rule not in self._said:
                self._said.add(rule)
                new.append(Warned(rule=rule, step=sample.step, message=message))
        self._remember(sample)
        return new

    def _judge(self, sample: Sample) -> Iterator[tuple[str, str]]:
        yield from self._too_long(sample)
        yield from self._retried(sample)
        yield from self._jumped_at_eval(sample)
        yield from self._fragmented(sample)
        yield from self._above_prediction(sample)
        yield from self._growing(sample)

    def _remember(self, sample: Sample) -> None:
        self._retries = sample.reading.retries
        if sample.phase in ("train", "optimizer"):
            self._high_reserved_in_training = max(self._high_reserved_in_training, sample.reading.peak_reserved_bytes)
            if self._first_step is None:
                self._first_step = sample.step
        elif sample.phase == "eval":
            self._evaluated = True

    def _matters(self, size_bytes: int) -> bool:
        device = self._expected.device_bytes
        return size_bytes >= (_MATTERS_BYTES if device is None else _MATTERS_SHARE * device)

    def _too_long(self, sample: Sample) -> Iterator[tuple[str, str]]:
        most = self._expected.max_width
        if most is not None and sample.width is not None and sample.width > most:
            yield (
                "batch-longer-than-declared",
                f"a batch is {sample.width} tokens wide, {most} were declared: activations grow with it, and a longer "
                "one may not fit",
            )

    def _retried(self, sample: Sample) -> Iterator[tuple[str, str]]:
        retries = sample.reading.retries
        before = self._retries if self._retries is not None else retries
        if retries > before:
            yield (
                "allocator-retries",
                f"the allocator found no room and emptied its cache ({retries - before} × in phase {sample.phase}): "
                f"each time costs a synchronisation, and the next request may fail; reserved "
                f"{gib(sample.reading.reserved_bytes)}{self._of_card()}",
            )

    def _jumped_at_eval(self, sample: Sample) -> Iterator[tuple[str, str]]:
        before, after = self._high_reserved_in_training, sample.reading.peak_reserved_bytes
        if sample.phase != "eval" or self._evaluated or before == 0:
            return
        if after - before > self._expected.thresholds.eval_jump * before and self._matters(after - before):
            yield (
                "reserved-jumps-at-eval",
                f"reserved memory went from {gib(before)} to {gib(after)}{self._of_card()} at the first evaluation and "
                "stays there: evaluation asks for blocks of other sizes than training left in the cache",
            )

    def _fragmented(self, sample: Sample) -> Iterator[tuple[str, str]]:
        if sample.phase == "load" or self._first_step in (None, sample.step):
            return
        reserved, idle = sample.reading.reserved_bytes, sample.reading.reserved_bytes - self._high_allocated
        if idle > self._expected.thresholds.fragmentation * reserved and self._matters(idle):
            yield (
                "memory-fragmented",
                f"{gib(reserved)} are reserved, of which at most {gib(self._high_allocated)} were ever in use at once: "
                f"{gib(idle)} ({100 * idle // reserved} %) lie in blocks of sizes that no request fits",
            )

    def _above_prediction(self, sample: Sample) -> Iterator[tuple[str, str]]:
        predicted, thresholds = self._expected.predicted, self._expected.thresholds
        if predicted is None:
            return
        share = max(thresholds.over_prediction, predicted.expected_error or 0.0)
        reading = sample.reading
        bounds = (
            ("reserved", reading.peak_reserved_bytes, predicted.peak_reserved_bytes),
            ("allocated", reading.peak_allocated_bytes, self._predicted_allocated(predicted, sample)),
        )
        for what, measured, bound in bounds:
            if bound and measured > bound * (1 + share) and self._matters(measured - bound):
                over = 100 * (measured - bound) / bound
                yield (
                    "above-prediction",
                    f"{what} peaks at {gib(measured)} in phase {sample.phase}, {over:.0f} % above the predicted "
                    f"{gib(bound)}: what was left free on the card by prediction is less",
                )

    def _predicted_allocated(self, predicted: PredictedMemory, sample: Sample) -> int:
        """Return the prediction for the phase, if peaks are measured by phase and it is predicted; else for the run."""
        resumed = sample.phase == "load" and sample.step > 0  # a checkpoint's optimizer states are loaded too
        if not self._expected.peaks_per_phase or resumed:
            return predicted.peak_allocated_bytes
        names = PREDICTED_PHASES[sample.phase]
        peaks = [one.peak_allocated_bytes for one in predicted.phases if one.phase in names]
        return max(peaks, default=predicted.peak_allocated_bytes)

    def _growing(self, sample: Sample) -> Iterator[tuple[str, str]]:
        """Check growth at the end of a step: without gradients and activations, memory should stay equal."""
        settled = self._first_step is not None and sample.step >= self._first_step + _SETTLING_STEPS
        if sample.phase != "optimizer" or not settled:
            return
        reading = sample.reading
        cached = reading.reserved_bytes - reading.allocated_bytes
        leak = self._allocated.see(sample.step, reading.allocated_bytes)
        creep = self._reserved.see(sample.step, reading.reserved_bytes)
        if leak and (end := self._end(sample.step, leak, reading, cached)):
            yield (
                "allocated-grows",
                f"{_climb('allocated', leak)}, which should be the same after every step: tensors are kept alive{end}",
            )
        elif creep and "allocated-grows" not in self._said and (end := self._end(sample.step, creep, reading, 0)):
            yield "reserved-grows", f"{_climb('reserved', creep)}, while allocated does not: shapes change{end}"

    def _end(self, step: int, trend: Trend, reading: Reading, cached_bytes: int) -> str | None:
        """Return where the climb leads, or None if it does not fill the card within the run."""
        free = reading.device_free_bytes
        if free is None:
            return "" if self._matters(trend.last_bytes - trend.first_bytes) else None
        full_at = step + int((free + cached_bytes) / trend.bytes_per_step)
        last = self._expected.max_steps
        if last is not None and full_at > last:
            return None
        of_last = "" if last is None else f" of {last}"
        return f"; at this rate the card is full at about step {full_at}{of_last}"

    def _of_card(self) -> str:
        device = self._expected.device_bytes
        return "" if device is None else f" of {gib(device)}"


def _climb(what: str, trend: Trend) -> str:
    first, last = (mib(trend.first_bytes), mib(trend.last_bytes))
    return f"{what} memory grew from {first} to {last} in {trend.steps} steps ({a_step(trend.bytes_per_step)} a step)"
