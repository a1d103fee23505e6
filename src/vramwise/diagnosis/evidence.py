"""Data types of a diagnosis, from what a log says to what is concluded. Data only: nothing here reads or reasons.

Reading order: Quote → MemoryText → Symptom → LogFacts (what the log holds), then Cause → Diagnosis (what follows).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from vramwise.notebook.displayed import Displayed
from vramwise.types import Fix

if TYPE_CHECKING:
    from vramwise.diagnosis.read.snapshot import SnapshotFacts

# Where in a run something happened. "train": a step, but without a traceback that says which part; "": unknown.
PhaseName = Literal["load", "resume", "forward", "loss", "backward", "clip", "optimizer", "eval", "save", "train", ""]
# The same in detail, as `read.stages` tells them apart; each belongs to one phase.
_Before = Literal[
    "load", "to-device", "reference", "ddp-init", "fsdp-init", "zero-init", "data", "pin-memory", "resume"
]
_Forward = Literal["forward", "embedding", "attention", "mlp", "vision", "unshard", "offload", "loss", "log-probs"]
_Backward = Literal["recompute", "backward", "clip", "optimizer-init", "optimizer", "compile"]
_Between = Literal["eval", "eval-gather", "generate", "save", "save-gather", "merge", "weight-sync"]
_Host = Literal["data", "pin-memory"]
_Vllm = Literal["vllm-start", "vllm-profile", "vllm-cache", "vllm-sampler", "vllm-wake"]
StageName = Literal[_Before, _Forward, _Backward, _Between, _Host, _Vllm, "train", ""]
PlatformName = Literal["windows", "wsl", "mac", "kaggle", "colab", "container", "slurm", ""]


# A cause below this confidence is called a guess.
_A_GUESS = 0.6


class Quote(NamedTuple):
    """A line of the log without colours, and its number (from 1, as in editors)."""

    line: int
    text: str


class Process(NamedTuple):
    """A process on the card, as a message lists it."""

    pid: int
    size_bytes: int


class Frame(NamedTuple):
    """One call of a traceback, and the source line shown below it (empty if none is shown)."""

    file: str
    function: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryText:
    """The figures of an out-of-memory message; None for those it does not give."""

    wording: str  # "torch", "torch-old", "async", "mps"… : the variant of the message
    requested_bytes: int | None = None
    # How far the real request may differ from the figure: messages round to two decimals.
    tolerance_bytes: int = 0
    total_bytes: int | None = None
    free_bytes: int | None = None
    allocated_bytes: int | None = None
    unallocated_bytes: int | None = None  # reserved by torch, held by no tensor
    this_process_bytes: int | None = None
    allowed_bytes: int | None = None  # set_per_process_memory_fraction
    device: int | None = None
    processes: tuple[Process, ...] = ()  # all that the message lists

    @property
    def reserved_bytes(self) -> int | None:
        """The bytes torch's allocator held; None if unknown."""
        if self.allocated_bytes is None or self.unallocated_bytes is None:
            return None
        return self.allocated_bytes + self.unallocated_bytes

    @property
    def room_bytes(self) -> int | None:
        """What the allocator could still take from the driver: free memory, or less under a memory fraction."""
        free = self.free_bytes
        if self.allowed_bytes is None or self.reserved_bytes is None:
            return free
        left = max(0, self.allowed_bytes - self.reserved_bytes)
        return left if free is None else min(free, left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """A line that reports a failure, and the state of the run at that point."""

    kind: str
    quote: Quote
    rank: int | None = None
    memory: MemoryText | None = None
    frames: tuple[Frame, ...] = ()
    details: Mapping[str, str] = field(default_factory=dict)
    phase: PhaseName = ""
    stage: StageName = ""
    inner: StageName = ""  # what the innermost calls computed, whatever part of the run called them
    told: bool = False  # a person says so in words; no message was printed
    cut: bool = False  # the traceback ends before its message: that memory ran out is assumed
    step: int | None = None  # the current optimizer step, from 1; None if unknown
    after: Literal["eval", "save", ""] = ""  # no step was completed since
    resumed: bool = False
    first_eval: bool = True


class Reading(NamedTuple):
    """A memory figure at a step."""

    step: int
    size_bytes: int
    line: int


class Setting(NamedTuple):
    """A setting of the run that the log shows."""

    value: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What a person says in words about the failure: the line that says it; None: not stated.

    `tried`: names of changes (those of `remedies.json`) that were tried without success.
    """

    grows_steadily: Quote | None = None  # memory rises a little each step
    grows_at_save: Quote | None = None  # … with each checkpoint or evaluation
    works_with_smaller_batch: Quote | None = None
    works_with_shorter_rows: Quote | None = None
    works_without_images: Quote | None = None
    worked_before: Quote | None = None  # with an older version, or the day before
    worked_on_fewer_cards: Quote | None = None
    only_on_resume: Quote | None = None
    late: Quote | None = None  # "after a few hours": training had gone well for a while
    gpu_has_room: Quote | None = None  # "two thirds were unused"
    grows: Quote | None = None  # memory rises, in whatever way
    extra_processes: Quote | None = None  # "7 extra processes on GPU 0"
    absurd_size: Quote | None = None  # "trying to allocate 1 EB"
    host_memory: Quote | None = None  # RAM fills up
    host_bytes: int | None = None  # how much of it, if a figure is given
    tried: Mapping[str, Quote] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The run as its text describes it, in prose or as options of a command; None: not told."""

    model: str | None = None  # a name of a known shape
    method: Literal["full", "lora", "qlora"] | None = None
    zero_stage: int | None = None
    fsdp: bool = False
    offload: bool = False
    cards: int | None = None
    gpu: str | None = None  # a name of `facts.gpus`
    sequence_len: int | None = None
    micro_batch: int | None = None
    billions: float = 0  # parameters, in billions, by the smallest size that the text names; 0 if it names none
    named: frozenset[str] = frozenset()  # circumstances that it names: MLX, rollouts, a split model


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """The contents of a log. `symptoms` are in order; `recovered` holds those the run recovered from."""

    name: str
    lines: int
    size_bytes: int
    symptoms: Sequence[Symptom] = ()
    recovered: Sequence[Symptom] = ()
    ranks: frozenset[int] = frozenset()
    settings: Mapping[str, Setting] = field(default_factory=dict)
    keys_written: frozenset[str] = frozenset()  # settings under the names that the log uses
    trainers: frozenset[str] = frozenset()  # packages of the trainers that it names
    libraries: frozenset[str] = frozenset()  # other libraries at work: vllm, deepspeed, fsdp, ray
    training_loop: bool = False  # it has lines printed by transformers' Trainer or a subclass
    steps_done: int | None = None
    total_steps: int | None = None
    memory: Sequence[Reading] = ()  # allocated or active memory, step by step, thinned out
    dropped: int = 0  # symptoms beyond those kept
    stated: Stated = field(default_factory=Stated)
    setup: Setup = field(default_factory=Setup)
    platform: PlatformName = ""
    finished: bool = False  # it shows the end of a run that went well


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to change: edits of the config, or a command. `survives`: whether the ghost run fits with it."""

    title: str
    keys: tuple[str, ...] = ()  # `key: value`, for readers without a config
    fix: Fix | None = None
    command: str | None = None
    diff: str = ""
    refused: str = ""  # why the edit could not be made
    survives: bool | None = None
    prediction: str = ""
    # Changed run fields of a remedy outside the config, so that it can be simulated too.
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A possible cause. `confidence` is between 0 and 1; `evidence` says why, `quotes` are lines of the log."""

    id: str
    sentence: str
    confidence: float
    evidence: tuple[str, ...] = ()
    quotes: tuple[Quote, ...] = ()
    has_rule: bool = True  # False: no rule covers this case, even if one explains the cause
    rule: str | None = None  # the rule that explains it; `rank_causes` fills it
    remedies: tuple[Remedy, ...] = ()

    @property
    def is_guess(self) -> bool:
        """Whether no evidence points to this cause more than to others."""
        return self.confidence < _A_GUESS

    @property
    def certainty(self) -> str:
        """The confidence as a word."""
        for bound, word in ((0.9, "certain"), (0.7, "likely"), (0.4, "possible")):
            if self.confidence >= bound:
                return word
        return "unlikely"


Verdict = Literal["no-failure", "recovered", "diagnosed", "unexplained"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Displayed):
    """What happened. `causes` are ranked, likeliest first; `next_steps` say what to collect next."""

    verdict: Verdict
    sentence: str
    symptom: Symptom | None
    causes: tuple[Cause, ...]
    log: LogFacts | None
    config: str | None = None
    trainer: str | None = None  # whose keys remedies use: the config's, otherwise the log's; None if neither is known
    snapshot: SnapshotFacts | None = None
    ghost: tuple[str, ...] = ()  # what the prediction of this config says
    notes: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a failure was found."""
        return self.verdict in ("diagnosed", "unexplained")
