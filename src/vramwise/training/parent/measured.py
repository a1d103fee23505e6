"""The report of a run: attempts, predicted against measured by phase, warnings, decisions.

Built only from the lines of `memory.jsonl` (which repeats the prediction at the start of every attempt), so it works
for `vramwise train`, the Axolotl plugin, a guard used alone, and a run that is still going on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from vramwise.errors import VramwiseError
from vramwise.training.guard.memory_log import LogContents, log_path, read_log, usable
from vramwise.training.guard.samples import PREDICTED_PHASES, Sample
from vramwise.units import whole_number

Which = Literal["allocated_bytes", "reserved_bytes"]
# At most this many logs of other ranks are read.
_MOST_RANKS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Highest allocated and reserved bytes."""

    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One phase: predicted and measured peaks; None if there is no such figure."""

    phase: str
    predicted: Peak | None
    measured: Peak | None

    def error(self, which: Which) -> float | None:
        """Return the error of the prediction as a share of the measured value; None if either is missing."""
        measured = self.measured and getattr(self.measured, which)
        if self.predicted is None or not measured:
            return None
        return float((getattr(self.predicted, which) - measured) / measured)


class StepPeak(NamedTuple):
    """The peaks of one step of one attempt, including evaluation and save."""

    attempt: int
    step: int
    allocated: int
    reserved: int
    evaluated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One process that trained, from its start line on."""

    start: Mapping[str, Any]
    samples: Sequence[Sample] = ()
    warnings: Sequence[Mapping[str, Any]] = ()
    ended: bool = False

    @property
    def predicted(self) -> Mapping[str, Any] | None:
        """The prediction that it is compared with."""
        found = self.start.get("predicted")
        return found if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPeak:
    """The peaks of one rank."""

    rank: int
    peak: Peak


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport:
    """The whole report, in chronological order."""

    output_dir: str
    attempts: Sequence[Attempt]
    decisions: Sequence[Mapping[str, Any]]
    torn: int
    cut: bool = False  # only the beginning of the log was read
    # the peaks of each rank, if there are several; `last` is then that of the fullest rank
    ranks: Sequence[RankPeak] = ()
    fullest: Attempt | None = None

    @property
    def last(self) -> Attempt:
        """The attempt to compare: the latest with measurements, else the latest."""
        if self.fullest is not None:
            return self.fullest
        measured = [attempt for attempt in self.attempts if attempt.samples]
        return (measured or list(self.attempts))[-1]

    @property
    def device(self) -> str | None:
        """The name of the card."""
        return self.last.start.get("device")

    @property
    def device_bytes(self) -> int | None:
        """The memory of the card."""
        return self.last.start.get("device_bytes")

    @property
    def last_step(self) -> int:
        """The last step that was measured."""
        return max((sample.step for sample in self.last.samples), default=self.last.start.get("step", 0))

    @property
    def predicted_reserved_bytes(self) -> int | None:
        """The latest prediction of reserved memory."""
        whole = [attempt.predicted for attempt in self.attempts if attempt.predicted]
        return whole[-1]["peak_reserved_bytes"] if whole else None

    @property
    def compared(self) -> list[Compared]:
        """Predicted against measured, for the attempt to compare."""
        return compare(self.last)

    @property
    def step_peaks(self) -> list[StepPeak]:
        """The peaks step by step, attempt after attempt."""
        return [peak for number, attempt in enumerate(self.attempts) for peak in _step_peaks(number, attempt.samples)]

    @property
    def out_of_memories(self) -> list[Mapping[str, Any]]:
        """The decisions made after an out-of-memory."""
        return [decision for decision in self.decisions if decision.get("what") == "out-of-memory"]


def read_report(output_dir: str | Path) -> TrainReport:
    """Return the report of a run's folder; raises VramwiseError if it has no memory log."""
    path = log_path(output_dir)
    if not path.is_file():
        raise VramwiseError(f"{path} is not there: give the output_dir of a run that the memory guard watched")
    return _joined(make_report(read_log(path), str(output_dir)), _other_ranks(Path(output_dir)))


def _other_ranks(folder: Path) -> list[tuple[int, Path]]:
    """Return the logs of the other ranks, of all nodes that share the folder, in order."""
    files = islice(folder.glob("memory.rank*.jsonl"), _MOST_RANKS)
    found = [(whole_number(file.name.removeprefix("memory.rank").removesuffix(".jsonl")), file) for file in files]
    return sorted((rank, file) for rank, file in found if rank is not None and file.is_file())


def _joined(report: TrainReport, others: Sequence[tuple[int, Path]]) -> TrainReport:
    """Return one report of all ranks: the peaks of each, and the attempt as the fullest rank saw it.

    Logs are read one after the other, and only the fullest rank's samples are kept.
    """
    last = report.last
    highest = _highest(_peaks(last.samples))
    if not others or highest is None:
        return report
    ranks, fullest, torn = [RankPeak(rank=0, peak=highest)], last, report.torn
    for rank, file in others:
        try:
            other = make_report(read_log(file), str(file))
        except VramwiseError:  # its process was killed before it wrote a complete line
            torn += 1
            continue
        torn += other.torn
        alike = [one for one in other.attempts if one.start.get("attempt") == last.start.get("attempt")]
        peak = _highest(_peaks(alike[-1].samples)) if alike else None
        if peak is None:
            continue
        ranks.append(RankPeak(rank=rank, peak=peak))
        if (peak.reserved_bytes, peak.allocated_bytes) > (highest.reserved_bytes, highest.allocated_bytes):
            highest, fullest = peak, alike[-1]
    if fullest.predicted is None and last.predicted is not None:
        fullest = replace(fullest, start={**fullest.start, "predicted": last.predicted})
    return replace(report, torn=torn, ranks=ranks, fullest=fullest)


def make_report(log: LogContents, output_dir: str) -> TrainReport:
    """Sort the lines of a log by attempt; raises VramwiseError if there is none."""
    records = [record for one in log.records if (record := usable(one)) is not None]
    torn = log.torn + len(log.records) - len(records)
    attempts: list[Attempt] = []
    for record in records:
        if record["kind"] == "start":
            attempts.append(Attempt(start=record))
        elif attempts and record["kind"] in ("sample", "warning", "end"):
            attempts[-1] = _with(attempts[-1], record)
    if not attempts:
        cut = f" ({torn} line(s) of it cannot be read)" if torn else ""
        raise VramwiseError(f"{output_dir}: the memory log holds no attempt{cut}: training never began")
    if log.of_kind("sample") and not any(attempt.samples for attempt in attempts):
        raise VramwiseError(f"{output_dir}: no sample in the memory log can be read: its lines are cut short")
    decisions = [record for record in records if record["kind"] == "decision"]
    return TrainReport(output_dir=output_dir, attempts=attempts, decisions=decisions, torn=torn, cut=log.cut)


def _with(attempt: Attempt, record: Mapping[str, Any]) -> Attempt:
    if record["kind"] == "sample":
        # a growing list: copying a tuple for each of a million lines would be too slow
        samples = attempt.samples if isinstance(attempt.samples, list) else list(attempt.samples)
        samples.append(Sample.from_json(record))
        return attempt if samples is attempt.samples else replace(attempt, samples=samples)
    if record["kind"] == "warning":
        warnings = attempt.warnings if isinstance(attempt.warnings, list) else list(attempt.warnings)
        warnings.append(record)
        return attempt if warnings is attempt.warnings else replace(attempt, warnings=warnings)
    return replace(attempt, ended=True)


def compare(attempt: Attempt) -> list[Compared]:
    """Return predicted against measured by phase, then for the whole run."""
    rows = [
        Compared(phase=phase, predicted=_predicted(attempt, names), measured=_measured(attempt, phase))
        for phase, names in PREDICTED_PHASES.items()
    ]
    whole = Compared(phase="run", predicted=_predicted(attempt, None), measured=_highest(_peaks(attempt.samples)))
    return [row for row in (*rows, whole) if row.predicted or row.measured]


def _predicted(attempt: Attempt, names: frozenset[str] | None) -> Peak | None:
    predicted = attempt.predicted
    if predicted is None:
        return None
    if names is None:
        return _highest([predicted])
    return _highest([phase for phase in predicted.get("phases", ()) if phase.get("phase") in names])


def _highest(rows: Sequence[Mapping[str, Any]]) -> Peak | None:
    if not rows:
        return None
    return Peak(
        allocated_bytes=max(row["peak_allocated_bytes"] for row in rows),
        reserved_bytes=max(row["peak_reserved_bytes"] for row in rows),
    )


def _peaks(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    return [sample.to_json() for sample in samples]


def _measured(attempt: Attempt, phase: str) -> Peak | None:
    """Return the peaks of a phase. If the counters are never reset, only phases that raised them count."""
    samples: Sequence[Sample] = [sample for sample in attempt.samples if sample.phase == phase]
    if attempt.start.get("peaks") != "phase":
        samples = [sample for sample in _raising(attempt.samples) if sample.phase == phase]
    return _highest(_peaks(samples))


def _step_peaks(attempt: int, samples: Sequence[Sample]) -> Iterator[StepPeak]:
    for step, group in groupby(samples, key=lambda sample: sample.step):
        within = list(group)
        allocated = max(sample.reading.peak_allocated_bytes for sample in within)
        reserved = max(sample.reading.peak_reserved_bytes for sample in within)
        evaluated = any(sample.phase == "eval" for sample in within)
        yield StepPeak(attempt, step, allocated, reserved, evaluated)


def _raising(samples: Sequence[Sample]) -> Iterator[Sample]:
    highest = -1
    for sample in samples:
        if sample.reading.peak_allocated_bytes > highest:
            highest = sample.reading.peak_allocated_bytes
            yield sample
