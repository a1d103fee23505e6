"""The plan of one training attempt: everything the worker process needs, as one JSON file.

The parent (`vramwise train`) decides and writes it; the worker reads it before torch is imported and decides nothing
more. A restart after an out-of-memory is the same plan with another attempt number, checkpoint and micro-batch. The
plan contains the config's text, so editing the file during a run does not affect a restart. Data only: no torch, and no
files except `read_plan` and `write_plan`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, parse_json, read_file
from vramwise.types import GpuSpec, Target
from vramwise.whole_files import write_new

FORMAT = 1
PLAN_FILE = "vramwise.json"
# For names that are not UTF-8: Python's escape of a lone surrogate is also valid JSON, so it can be read back.
ESCAPED = "backslashreplace"

# Beginning of an annotation → allowed JSON types. Nested dataclasses are checked separately.
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "bool": bool,
    "str": str,
    "Literal": str,
    "None": type(None),
    "Mapping": dict,
    "tuple": list,
}

# Exit codes of the worker, for whoever started it.
EXIT_OUT_OF_MEMORY = 75
EXIT_TERMINATED = 143


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPhase:
    """The predicted peaks of one phase of one step. Phase names are those of `timeline.Phase`."""

    step: int
    phase: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedMemory:
    """The prediction for the run on one card; `expected_error` is a share (0.03 = ±3 %), None if unknown."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    outside_bytes: int
    limit_bytes: int | None
    phases: tuple[PredictedPhase, ...] = ()
    breakdown_bytes: Mapping[str, int] = field(default_factory=dict)
    expected_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardThresholds:
    """The thresholds from which the memory guard warns."""

    enabled: bool = True
    # measured reserved above predicted by more than this share
    over_prediction: float = 0.05
    # growth: allocated at the end of a step, fitted over this many steps, reaching the card's end within the run
    growth_steps: int = 20
    # reserved − allocated, at the peak, as a share of reserved
    fragmentation: float = 0.3
    # reserved at the first evaluation against the highest before it
    eval_jump: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision before the first step: its name, value and reason."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """One attempt at one run."""

    config_path: str  # absolute; relative paths inside the config are relative to the working directory, as in Axolotl
    config_text: str
    output_dir: str  # absolute
    engine: Literal["transformers", "axolotl", "trl", "llamafactory", "script"] = "transformers"
    kind: str = ""  # the kind of training, if the trainer's command needs it
    trainer: str = ""  # the file's trainer, under the embedded engine; "" = its own
    command: tuple[str, ...] = ()  # for a script: the words before it, as the user starts it
    arguments: tuple[str, ...] = ()  # for a script: the words after it
    # recovery
    attempt: int = 1
    resume_from: str | None = None  # a complete checkpoint folder, or None for the start
    recover: bool = True
    resumable: bool = True  # the engine can resume from a checkpoint of this training
    run: str = ""  # the run whose checkpoints it writes and may delete; a resumed run keeps it
    settings: Mapping[str, str] = field(default_factory=dict)  # the settings that a checkpoint must have
    force: bool = False  # also resume a checkpoint of other data
    # batch: micro × accumulation × data_parallel = effective, at every attempt
    micro_batch_size: int
    gradient_accumulation_steps: int
    eval_batch_size: int | None  # None: no evaluation happens
    effective_batch_size: int
    gpus: int = 1  # processes to start, all nodes together
    data_parallel: int = 1
    # shapes
    sequence_len: int
    pad_multiple: int
    constant_shapes: bool
    packs_anew: bool = False  # another micro-batch packs differently, so a step holds other samples
    # dtypes, decided by the card's compute capability
    precision: Literal["bf16", "fp16", "fp32", "fp8"]  # fp8: only Axolotl's engine
    weights_dtype: Literal["bf16", "fp16", "fp32"]
    autocast: bool = False
    # the process
    environment: Mapping[str, str] = field(default_factory=dict)  # to set before torch is imported
    seed: int = 42
    random_weights: bool = False
    trust_remote_code: bool = False  # requested by the config and permitted by the user
    memory_limit_bytes: int | None = None  # the most that the allocator may reserve (--memory-limit)
    # what the config is resolved for in the worker: see `target_of`
    target: Mapping[str, Any] = field(default_factory=dict)
    # what memory is predicted for: the card (`GpuSpec` as a mapping; None: the CPU) and the allocator settings in force
    card: Mapping[str, Any] | None = None
    allocator: str = ""
    # memory
    predicted: PredictedMemory | None = None
    guard: GuardThresholds = field(default_factory=GuardThresholds)
    decisions: tuple[Decision, ...] = ()

    def restarted(
        self,
        *,
        resume_from: str | None,
        micro_batch_size: int | None = None,
        gradient_accumulation_steps: int | None = None,
        eval_batch_size: int | None = None,
    ) -> TrainPlan:
        """Return the next attempt; raises VramwiseError if the effective batch would change."""
        micro = micro_batch_size or self.micro_batch_size
        accumulation = gradient_accumulation_steps or self.gradient_accumulation_steps
        if micro * accumulation != self.micro_batch_size * self.gradient_accumulation_steps:
            raise VramwiseError(
                f"a restart must keep the effective batch: micro {micro} × accumulation {accumulation} ≠ "
                f"{self.micro_batch_size} × {self.gradient_accumulation_steps}"
            )
        return replace(
            self,
            attempt=self.attempt + 1,
            resume_from=resume_from,
            micro_batch_size=micro,
            gradient_accumulation_steps=accumulation,
            eval_batch_size=eval_batch_size or self.eval_batch_size,
        )

    def gpu_spec(self) -> GpuSpec | None:
        """Return the card this is planned for, or None; raises VramwiseError if it is unreadable."""
        if self.card is None:
            return None
        try:
            known = typed(GpuSpec, self.card)
            capability = known["capability"]
            return GpuSpec(**{**known, "capability": None if capability is None else tuple(capability)})
        except (TypeError, KeyError) as error:
            raise VramwiseError(f"not a readable plan: its card: {error}") from error

    def to_json(self) -> str:
        """Return the plan as text; `from_json` returns an equal plan."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> TrainPlan:
        """Return the plan of a text that `to_json` wrote; raises VramwiseError if it is not one."""
        try:
            values = parse_json(text)
            if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
                raise VramwiseError(f"not a plan of format {FORMAT}: written by another version of vramwise")
            return cls(**typed(cls, values) | _nested(values))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise VramwiseError(f"not a readable plan: {error}") from error


def target_of(target: Target) -> dict[str, Any]:
    """Return what a config is resolved for, as a plan stores it: cards, versions, launcher."""
    versions = [f"{name}=={release.meant}" for name, release in target.stack.releases.items()]
    return {"gpus": target.gpus, "versions": versions, "launcher": target.launcher}


def card_of(gpu: GpuSpec | None) -> dict[str, Any] | None:
    """Return a card as a plan stores it: plain containers that survive JSON."""
    if gpu is None:
        return None
    return {**asdict(gpu), "capability": None if gpu.capability is None else list(gpu.capability)}


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    predicted = values.get("predicted")
    return {
        "predicted": None if predicted is None else _predicted(predicted),
        "guard": GuardThresholds(**typed(GuardThresholds, values.get("guard", {}))),
        "decisions": tuple(Decision(**typed(Decision, one)) for one in _rows(values.get("decisions"))),
        "command": _words(values.get("command", [])),
        "arguments": _words(values.get("arguments", [])),
    }


def _predicted(values: Mapping[str, Any]) -> PredictedMemory:
    known = typed(PredictedMemory, values)
    phases = tuple(PredictedPhase(**typed(PredictedPhase, one)) for one in _rows(values.get("phases")))
    return PredictedMemory(**{**known, "phases": phases})


def _words(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise TypeError("a command should be a list of words")
    return tuple(values)


def _rows(values: Any) -> Sequence[dict[str, Any]]:
    return values if isinstance(values, list) else []


def read_plan(path: str | Path) -> TrainPlan:
    """Read a plan from a file; raises VramwiseError if it is not one."""
    try:
        return TrainPlan.from_json(read_file(path, ceilings.RUN_FILE_BYTES, "a plan").decode("utf-8"))
    except UnicodeDecodeError as error:
        raise VramwiseError(f"{path} is not a readable plan: it is not UTF-8") from error


def write_plan(plan: TrainPlan, path: str | Path | None = None) -> Path:
    """Write the plan (default: `vramwise.json` in its output_dir), completely or not at all."""
    target = Path(path) if path else Path(plan.output_dir) / PLAN_FILE
    write_new(target, plan.to_json().encode("utf-8", ESCAPED), make_folder=True)
    return target


def typed(cls: type[Any], values: Any) -> dict[str, Any]:
    """Return the values whose names `cls` has; raises TypeError if one does not match its field's type."""
    if not isinstance(values, dict):
        raise TypeError(f"{cls.__name__} is no mapping")
    known = {one.name: str(one.type) for one in fields(cls) if one.name in values}
    for name, annotation in known.items():
        if not any(_is_of(values[name], part) for part in annotation.split(" | ")):
            raise TypeError(f"'{name}' should be {annotation}")
    return {name: values[name] for name in known}


def _is_of(value: Any, annotation: str) -> bool:
    head, _, inner = annotation.partition("[")
    if head not in _KINDS:
        return isinstance(value, dict)
    if isinstance(value, bool) and head != "bool":
        return False
    if isinstance(value, dict) and inner == "str, str]":
        return head == "Mapping" and all(isinstance(item, str) for item in value.values())
    return isinstance(value, _KINDS[head])
