"""Everything known about one failure: the symptom, the log, the config's ghost run, the snapshot."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from vramwise.diagnosis.evidence import Frame, LogFacts, MemoryText, Quote, Symptom
from vramwise.diagnosis.read.factor import Batch, Dimensions, Factors, factor
from vramwise.diagnosis.read.phases import place_of
from vramwise.diagnosis.read.snapshot import SnapshotFacts
from vramwise.diagnosis.read.speakers import Speaker, speaker_of
from vramwise.diagnosis.witness import Ghost, Match, known_card
from vramwise.facts.gpus import find_gpu
from vramwise.models.known import by_name
from vramwise.models.parameters import parameter_count, parameters
from vramwise.types import GpuSpec, RunSpec
from vramwise.units import readable, whole_number

# A failure from this step on is late: earlier steps needed the same memory.
LATE_STEP = 5
_VISION = re.compile(
    r"vision|visual|image|pixel|modeling_\w*(?:vl|llava|paligemma|pixtral|idefics|mllama|internvl)\b|\bllava|[-_.\d]VL\b"
    r"|paligemma|pixtral|idefics|internvl|minicpm-v|smolvlm",
    re.IGNORECASE,
)
STEP_PARTS = ("forward", "loss", "backward", "clip", "optimizer", "train", "")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A failure and the evidence for explaining it."""

    symptom: Symptom
    log: LogFacts
    ghost: Ghost | None = None
    told: Ghost | None = None  # the run as the text describes it, if there is no config
    snapshot: SnapshotFacts | None = None
    said_trainer: str | None = None  # the trainer, if the caller names it
    said_card: tuple[int | None, GpuSpec] | None = None  # the cards, if the caller names them

    @cached_property
    def speaker(self) -> Speaker:
        """The trainer whose keys remedies use: the config's, otherwise the log's."""
        if self.ghost is not None:
            return Speaker(trainer=self.ghost.subject.trainer, known=True)
        return speaker_of(self.log, self.symptom.frames, self.said_trainer)

    @property
    def run(self) -> RunSpec | None:
        """The config's run; None without a config."""
        return self.ghost.run if self.ghost else None

    @cached_property
    def memory(self) -> MemoryText:
        """The memory figures of the failure: the message's, or the snapshot's if the message has no request size."""
        memory = self.symptom.memory or MemoryText(wording="none")
        shot = self.snapshot
        if shot is None or not shot.failed or memory.requested_bytes is not None:
            return memory
        return snapshot_memory(shot)

    @property
    def requested(self) -> int:
        """The requested bytes; 0 if unknown."""
        return self.memory.requested_bytes or 0

    @property
    def capacity(self) -> int | None:
        """The memory the process could use: the card's, or less under a memory fraction; None if unknown."""
        bounds = [size for size in (self.memory.total_bytes, self.memory.allowed_bytes) if size is not None]
        if not bounds and self.ghost is not None and self.ghost.run.target.gpu is not None:
            return self.ghost.run.target.gpu.memory_bytes
        return min(bounds, default=None)

    @property
    def card(self) -> GpuSpec | None:
        """The card as the options, the config or the text name it; None if none does."""
        if self.said_card is not None:
            return self.said_card[1]
        if self.ghost is not None and self.ghost.run.target.gpu is not None:
            return self.ghost.run.target.gpu
        name = known_card(self.log.setup)
        return find_gpu(name) if name else None

    @cached_property
    def cards(self) -> int:
        """How many cards the run used; 0 if unknown."""
        said = self.said_card[0] if self.said_card is not None else None
        shown = max(self.log.ranks, default=-1) + 1, (self.memory.device or 0) + 1, self.number("world_size")
        known = said or self.log.setup.cards or (self.run.target.gpus if self.run is not None else 0)
        most = max(known, *shown)
        return most if most > 1 or known else 0

    @cached_property
    def vision(self) -> bool:
        """Whether the model reads images: by the calls, the model's name, or the user's words."""
        names = [self.log.settings[key].value for key in ("base_model",) if key in self.log.settings]
        names += filter(None, (self.log.setup.model, self.run.base_model if self.run is not None else None))
        calls = (f"{frame.file} {frame.function} {frame.code}" for frame in self.symptom.frames)
        return (
            "vision" in (self.symptom.stage, self.symptom.inner)
            or self.log.stated.works_without_images is not None
            or any(_VISION.search(text) for text in (*names, *calls))
        )

    @property
    def uses_vllm(self) -> bool:
        """Whether vLLM takes part: by the failure, or anything the log names."""
        symptom = self.symptom
        return symptom.stage.startswith("vllm") or symptom.kind.startswith("vllm") or "vllm" in self.log.libraries

    @property
    def pins_memory(self) -> bool:
        """Whether the driver failed to pin host memory, for a copy to the CPU or a batch."""
        symptom = self.symptom
        return (symptom.kind == "driver-oom" or "CUDA error: invalid argument" in symptom.quote.text) and (
            not {symptom.stage, symptom.inner}.isdisjoint(("pin-memory", "offload"))
            or any(".pin_memory(" in frame.code for frame in symptom.frames[-3:])
        )

    @property
    def there_bytes(self) -> int:
        """All memory that was available, contiguous or not: free, or reserved but unallocated."""
        return (self.memory.unallocated_bytes or 0) + (self.memory.room_bytes or 0)

    @property
    def in_step(self) -> bool:
        """Whether it happened in a training step, or may have."""
        return self.symptom.phase in STEP_PARTS

    def seen(self, what: str) -> str:
        """Return where it happened, with what shows it: "the traceback is in saving"."""
        if self.symptom.told:
            return f"the text says that it failed {what}"
        return f"the {'traceback is' if self.symptom.frames else 'log ends'} {what}"

    @property
    def parameters(self) -> int:
        """The parameters of the base model, by the config, the log or the name of a model that the text tells; or 0."""
        if self.ghost is not None and self.ghost.subject.model is not None:
            return parameter_count(self.ghost.subject.model)
        # A 4-bit base is counted as it is packed where the digits have no separators: then it is at least this many.
        printed = self.number("base_parameters") or self.number("all_params")
        told = None if printed or self.log.setup.model is None else by_name(self.log.setup.model)
        named = int(self.log.setup.billions * 1e9)
        return printed or (parameter_count(told) if told is not None else named)

    @property
    def steps_passed(self) -> int | None:
        """Training steps completed before the failure; None if unknown."""
        return None if self.symptom.step is None else max(0, self.symptom.step - 1)

    @property
    def micro_batch_size(self) -> int:
        """Rows of a training micro-batch; 0 if unknown."""
        told = self.log.setup.micro_batch or 0
        return self.run.batch.micro_batch_size if self.run else self.number("micro_batch_size") or told

    @property
    def eval_batch_size(self) -> int:
        """Rows of an evaluation batch; 0 if unknown."""
        return (self.run.evaluation.eval_batch_size or 0) if self.run else self.number("eval_batch_size")

    @property
    def larger_eval_batch(self) -> bool:
        """Whether evaluation is known to use larger batches than training."""
        return 0 < self.micro_batch_size < self.eval_batch_size

    @cached_property
    def expandable(self) -> bool | None:
        """Whether expandable segments were on; None if neither snapshot nor log says so."""
        if self.snapshot is not None:
            return "expandable_segments:True" in self.snapshot.settings
        if "alloc_conf" in self.log.settings:
            return "expandable_segments:True" in self.log.settings["alloc_conf"].value
        return None

    @property
    def expandable_by_config(self) -> bool:
        """Whether the config's run has expandable segments on. The actual run may have been started without them."""
        return self.run is not None and "expandable_segments:True" in self.run.allocator.settings

    @cached_property
    def factors(self) -> list[Factors]:
        """What the request may have been for, judging by its size."""
        return factor(self.requested, self.memory.tolerance_bytes, self.dimensions) if self.requested else []

    def as_large_as(self, kind: str) -> Factors | None:
        """Return the factors of this kind that match the request's size; None if there are none."""
        return next((factors for factors in self.factors if factors.kind == kind), None)

    def arithmetic(self, kind: str) -> list[str]:
        """Return the arithmetic of a request whose size matches this kind, as evidence; otherwise an empty list."""
        found = self.as_large_as(kind)
        return [] if found is None else [f"{readable(self.requested)} = {found.arithmetic}"]

    @property
    def predicted_phase(self) -> str:
        """The phase in which the ghost run runs out of memory; "" if it does not, or there is none."""
        prediction = self.ghost.prediction if self.ghost else None
        failure = prediction.report.out_of_memory if prediction else None
        return failure.phase if failure else ""

    @cached_property
    def matches(self) -> list[Match]:
        """The ghost run's requests of the same size; empty for requests below 8 MiB."""
        if self.ghost is None or self.requested < 8 * 1024**2:
            return []
        return self.ghost.matches(self.requested, self.memory.tolerance_bytes)

    def number(self, key: str) -> int:
        """Return a whole number from the log's settings; 0 if there is none."""
        value = self.log.settings[key].value if key in self.log.settings else ""
        return whole_number(value) or 0

    @cached_property
    def dimensions(self) -> Dimensions:
        """Dimensions of the config's model; without one, those the log shows."""
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
    """Return the figures of a snapshot's failed request in the form of a parsed message."""
    return MemoryText(
        wording="snapshot",
        requested_bytes=shot.requested_bytes,
        tolerance_bytes=2 * 1024**2,
        free_bytes=shot.device_free_bytes,
        allocated_bytes=shot.allocated_bytes,
        unallocated_bytes=shot.unallocated_bytes,
        # More was free than requested, so a memory fraction applied; its value is at least what was reserved.
        allowed_bytes=shot.reserved_bytes if shot.device_free_bytes >= shot.requested_bytes else None,
    )


def snapshot_symptom(shot: SnapshotFacts, frames: tuple[Frame, ...]) -> Symptom:
    """Return the failure that a snapshot recorded, for logs that show none."""
    place = place_of(frames)
    return Symptom(
        kind="cuda-oom",
        quote=Quote(0, f"{shot.name}: a request failed"),
        memory=snapshot_memory(shot),
        frames=frames,
        phase=place.phase,
        stage=place.stage,
        inner=place.inner,
    )
