"""Everything known about one failure, side by side: the symptom, the log, the config's ghost run, the snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from vramwise.diagnosis.evidence import Frame, LogFacts, MemoryText, Quote, Symptom
from vramwise.diagnosis.read.factor import Batch, Dimensions, Factors, factor
from vramwise.diagnosis.read.phases import phase_of
from vramwise.diagnosis.read.snapshot import SnapshotFacts
from vramwise.diagnosis.speakers import Speaker, speaker_of
from vramwise.diagnosis.witness import Ghost, Match
from vramwise.facts.parameters import parameter_count, parameters
from vramwise.types import RunSpec
from vramwise.units import readable, whole_number

# From this step on, what a step needs had been there before.
LATE_STEP = 5
STEP_PARTS = ("forward", "loss", "backward", "clip", "optimizer", "train", "")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A failure and what there is to judge it by."""

    symptom: Symptom
    log: LogFacts
    ghost: Ghost | None = None
    snapshot: SnapshotFacts | None = None
    said_trainer: str | None = None  # who trains, where somebody says it

    @cached_property
    def speaker(self) -> Speaker:
        """Whose words remedies are in: the config's trainer, else the log's."""
        if self.ghost is not None:
            return Speaker(trainer=self.ghost.subject.trainer, known=True)
        return speaker_of(self.log, self.symptom.frames, self.said_trainer)

    @property
    def run(self) -> RunSpec | None:
        """The config's run, where there is one."""
        return self.ghost.run if self.ghost else None

    @cached_property
    def memory(self) -> MemoryText:
        """The figures of the failure: the message's, and the snapshot's where the message has none."""
        memory = self.symptom.memory or MemoryText(wording="none")
        shot = self.snapshot
        if shot is None or not shot.failed or memory.requested_bytes is not None:
            return memory
        return snapshot_memory(shot)

    @property
    def requested(self) -> int:
        """What was asked for; 0 where nothing says."""
        return self.memory.requested_bytes or 0

    @property
    def capacity(self) -> int | None:
        """What the process could have: the card, or less under a memory fraction."""
        bounds = [size for size in (self.memory.total_bytes, self.memory.allowed_bytes) if size is not None]
        if not bounds and self.ghost is not None and self.ghost.run.target.gpu is not None:
            return self.ghost.run.target.gpu.memory_bytes
        return min(bounds, default=None)

    @property
    def there_bytes(self) -> int:
        """What was there in one piece or in many: left to take, and reserved but unallocated."""
        return (self.memory.unallocated_bytes or 0) + (self.memory.room_bytes or 0)

    @property
    def in_step(self) -> bool:
        """Whether it happened in a training step, as far as is known."""
        return self.symptom.phase in STEP_PARTS

    @property
    def steps_passed(self) -> int | None:
        """Training steps that were completed before it; None where nothing says."""
        return None if self.symptom.step is None else max(0, self.symptom.step - 1)

    @property
    def micro_batch_size(self) -> int:
        """Rows of a training micro-batch; 0: not known."""
        return self.run.batch.micro_batch_size if self.run else self.number("micro_batch_size")

    @property
    def eval_batch_size(self) -> int:
        """Rows of an evaluation's batch; 0: not known."""
        return (self.run.evaluation.eval_batch_size or 0) if self.run else self.number("eval_batch_size")

    @property
    def larger_eval_batch(self) -> bool:
        """Whether evaluation is known to take more rows at once than training."""
        return 0 < self.micro_batch_size < self.eval_batch_size

    @cached_property
    def expandable(self) -> bool | None:
        """Whether the run had expandable segments on; None where neither log nor snapshot says."""
        if self.snapshot is not None:
            return "expandable_segments:True" in self.snapshot.settings
        if "alloc_conf" in self.log.settings:
            return "expandable_segments:True" in self.log.settings["alloc_conf"].value
        return None

    @property
    def expandable_by_config(self) -> bool:
        """Whether the config's trainer turns them on, unless the run was started otherwise."""
        return self.run is not None and "expandable_segments:True" in self.run.allocator.settings

    @cached_property
    def factors(self) -> list[Factors]:
        """What the request may have been, by its size."""
        return factor(self.requested, self.memory.tolerance_bytes, self.dimensions) if self.requested else []

    def as_large_as(self, kind: str) -> Factors | None:
        """The request as one kind of thing, if its size is that of one."""
        return next((factors for factors in self.factors if factors.kind == kind), None)

    def arithmetic(self, kind: str) -> list[str]:
        """The arithmetic of a request that is as large as a kind of thing, for the evidence; empty for any other."""
        found = self.as_large_as(kind)
        return [] if found is None else [f"{readable(self.requested)} = {found.arithmetic}"]

    @property
    def predicted_phase(self) -> str:
        """Where the ghost run runs out of memory; "" where it does not, or there is none."""
        prediction = self.ghost.prediction if self.ghost else None
        failure = prediction.report.out_of_memory if prediction else None
        return failure.phase if failure else ""

    @cached_property
    def matches(self) -> list[Match]:
        """What the ghost run asks for in that size."""
        if self.ghost is None or self.requested < 8 * 1024**2:
            return []
        return self.ghost.matches(self.requested, self.memory.tolerance_bytes)

    def number(self, key: str) -> int:
        """A whole number among the log's settings; 0 where there is none."""
        value = self.log.settings[key].value if key in self.log.settings else ""
        return whole_number(value) or 0

    @cached_property
    def dimensions(self) -> Dimensions:
        """Of the config's model; else what the log shows."""
        if self.ghost is not None and self.ghost.subject.model is not None:
            return _from_ghost(self.ghost, logged_eval_rows=self.number("eval_batch_size"))
        micro, length = self.micro_batch_size, self.number("sequence_len")
        evals = self.eval_batch_size or micro
        batches = [Batch("train", micro, length), Batch("eval", evals, length)] if micro and length else []
        return Dimensions(
            vocab_size=self.number("vocab_size"),
            heads=self.number("num_attention_heads"),
            hidden_size=self.number("hidden_size"),
            intermediate_size=self.number("intermediate_size"),
            batches=tuple(dict.fromkeys(batches)),
        )


def _from_ghost(ghost: Ghost, *, logged_eval_rows: int) -> Dimensions:
    model, run = ghost.subject.model, ghost.run
    assert model is not None
    batches = [Batch("train", run.batch.micro_batch_size, run.shapes.sequence_len)]
    rows = {run.evaluation.eval_batch_size, logged_eval_rows} if run.evaluation.evaluates else {logged_eval_rows}
    batches += [
        Batch("eval", row, run.evaluation.eval_sequence_len or run.shapes.sequence_len)
        for row in sorted(filter(None, rows))
    ]
    sizes = {parameter.numel: parameter.name for parameter in reversed(parameters(model))}
    return Dimensions(
        vocab_size=model.vocab_size,
        heads=model.num_attention_heads,
        hidden_size=model.hidden_size,
        intermediate_size=model.intermediate_size,
        parameter_sizes=tuple((name, size) for size, name in sizes.items()),
        trainable=0 if run.adapter.kind else parameter_count(model),
        batches=tuple(batches),
    )


def snapshot_memory(shot: SnapshotFacts) -> MemoryText:
    """The figures of a snapshot's failed request, as a message would have given them."""
    return MemoryText(
        wording="snapshot",
        requested_bytes=shot.requested_bytes,
        tolerance_bytes=2 * 1024**2,
        free_bytes=shot.device_free_bytes,
        allocated_bytes=shot.allocated_bytes,
        unallocated_bytes=shot.unallocated_bytes,
        # More was free than was asked for: a memory fraction, of which only this much is known.
        allowed_bytes=shot.reserved_bytes if shot.device_free_bytes >= shot.requested_bytes else None,
    )


def snapshot_symptom(shot: SnapshotFacts, frames: tuple[Frame, ...]) -> Symptom:
    """The failure that a snapshot recorded, for a log that shows none."""
    return Symptom(
        kind="cuda-oom",
        quote=Quote(0, f"{shot.name}: a request failed"),
        memory=snapshot_memory(shot),
        frames=frames,
        phase=phase_of(frames),
    )
