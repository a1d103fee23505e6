"""The ghost run as a witness: what this config was predicted to request, and what it would request after a change.

The only place where diagnosis calls the prediction. Its figures are evidence with their own error: they confirm or
contradict, but never overrule the log. Without a model in the catalogue there is no prediction.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from vramwise.diagnosis.evidence import MemoryText, Setup
from vramwise.documents.edit import apply_edits
from vramwise.errors import VramwiseError
from vramwise.facts.gpus import find_gpu
from vramwise.opening.options import Options
from vramwise.opening.subject import Subject, open_subject
from vramwise.timeline import Action
from vramwise.trainers.compose import composed
from vramwise.types import Document, Edit, GpuSpec, RunSpec
from vramwise.types.sections.sharding import ZeroSettings
from vramwise.units import gib
from vramwise.variants.prediction import Prediction
from vramwise.variants.verdict import Verdict
from vramwise.verbs.fitting.shorter_rows import judged

# The largest sizes of a described run that is simulated.
_LONGEST_ROWS, _MOST_CARDS = 1 << 18, 4096
_COUNTED = re.compile(r"^\d{1,4} ?x", re.IGNORECASE)
# A run that held this many times the prediction is not the predicted run.
_NOT_THIS_RUN = 1.25


class Match(NamedTuple):
    """Requests of the ghost run with the size of the failed one."""

    category: str
    label: str
    phase: str
    step: int
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ghost:
    """A config and its prediction on the log's card; `missing` says why there is no prediction.

    `broken`: because of an internal error of the prediction, not of the config or the model.
    """

    subject: Subject
    prediction: Prediction | None = None
    verdict: Verdict | None = None
    missing: str = ""
    broken: bool = False

    @property
    def document(self) -> Document:
        """The config document."""
        return self.subject.document

    @property
    def run(self) -> RunSpec:
        """The config's run on the log's card."""
        return self.subject.run

    def matches(self, requested_bytes: int, tolerance_bytes: int) -> list[Match]:
        """Return the ghost run's requests of that size, most frequent first."""
        if self.prediction is None:
            return []
        timeline = self.prediction.timeline
        counted: dict[tuple[int, int], int] = {}
        phase = -1
        low, high = requested_bytes - tolerance_bytes, requested_bytes + tolerance_bytes
        for action, _, size, _, tag in timeline.events:
            if action == Action.PHASE:
                phase = tag
            elif action == Action.ALLOC and low <= size <= high:
                counted[tag, phase] = counted.get((tag, phase), 0) + 1
        found: dict[tuple[str, str, str], Match] = {}
        for (tag, at), times in counted.items():
            name, step = timeline.phases[at] if at >= 0 else ("start", 0)
            key = (*timeline.tags[tag], name)
            before = found.get(key)
            step, times = (before.step, before.times + times) if before else (step, times)
            found[key] = Match(*timeline.tags[tag], name, step, times)
        return sorted(found.values(), key=lambda match: -match.times)

    def surpassed_by(self, memory: MemoryText | None) -> int | None:
        """Return the predicted peak if the failed run held far more (other config or data, or a leak); else None."""
        held = memory.allocated_bytes if memory else None
        if held is None or self.prediction is None:
            return None
        most = self.prediction.needs.peak_allocated_bytes
        return most if held > most * _NOT_THIS_RUN else None

    def peak_of(self, phase: str) -> int:
        """Return the peak of allocated memory in a phase over all steps; 0 if unknown."""
        report = None if self.prediction is None else self.prediction.needs
        return max((p.peak_allocated_bytes for p in report.phases if p.phase == phase), default=0) if report else 0


def summon(subject: Subject, memory: MemoryText | None, *, named_gpu: bool = False) -> Ghost:
    """Return the ghost run of a config on the log's card; a card named by the user takes precedence."""
    subject = _on_the_card(subject, memory, named_gpu=named_gpu)
    if subject.run.base_model is None and subject.model is None:
        return Ghost(subject=subject, missing="the config names no base model")
    try:
        prediction = _predict(subject, memory)
        return Ghost(
            subject=subject,
            prediction=prediction,
            verdict=judged(subject, prediction, prediction.limit_bytes),
        )
    except VramwiseError as error:
        return Ghost(subject=subject, missing=str(error))
    except Exception as error:
        # An internal error of the prediction must not break the diagnosis: the log can still be explained.
        return Ghost(subject=subject, missing=_fault(error), broken=True)


def summon_told(setup: Setup, memory: MemoryText | None, options: Options | None) -> Ghost | None:
    """Return the ghost run of a run that a text describes; None if it says too little, or nothing known.

    It is given gradient checkpointing and a fused loss: a run that does not fit with them does not fit without.
    """
    card = options.gpu if options is not None and options.gpu else known_card(setup)
    if setup.model is None or setup.method is None or (card is None and (memory is None or memory.total_bytes is None)):
        return None
    length = setup.sequence_len if setup.sequence_len is not None and setup.sequence_len <= _LONGEST_ROWS else None
    wished = {
        "adapter": "none" if setup.method == "full" else setup.method,
        "sequence_len": length,
        "micro_batch": setup.micro_batch,
        "checkpointing": True,
        "fused_loss": True,
    }
    cards = min(setup.cards or 1, _MOST_CARDS)
    try:
        trainer, values = composed(setup.model, wished)
        told = Options(gpu=card, gpus=None if card is not None and _COUNTED.match(card) else cards, trainer=trainer)
        subject = open_subject(values, told)
        if subject.run.batch.gpus > 1 and (kind := _sharding(setup)):
            zero = ZeroSettings() if kind.startswith("zero") else None
            run = subject.run.changed(
                sharding=kind,
                zero=zero,
                offload_optimizer=setup.offload,
                offload_params=setup.offload and kind == "zero3",
            )
            subject = subject.with_run(run)
        ghost = summon(subject, memory, named_gpu=card is not None)
    except Exception:
        return None  # a name that is no card or model: the text is explained without it
    return ghost if ghost.prediction is not None else None


def known_card(setup: Setup) -> str | None:
    """Return the card that a text names, without a size it does not come in; None if it is unknown."""
    for name in (setup.gpu, (setup.gpu or "").partition("-")[0]):
        with contextlib.suppress(VramwiseError):
            if name and find_gpu(name):
                return name
    return None


def _sharding(setup: Setup) -> str:
    if setup.zero_stage is not None:
        return f"zero{setup.zero_stage}"
    return "fsdp2" if setup.fsdp else ""


def would_survive(ghost: Ghost, edits: Sequence[Edit], memory: MemoryText | None) -> tuple[bool | None, str]:
    """Return whether the edited config is predicted to fit the card, and the figures; None if unknown."""
    try:
        changed = ghost.subject.with_document(apply_edits(ghost.document, edits))
    except VramwiseError as error:
        return None, str(error)
    except Exception as error:
        return None, _fault(error)
    return survival(ghost, changed, memory)


def survival(ghost: Ghost, changed: Subject, memory: MemoryText | None) -> tuple[bool | None, str]:
    """Return whether a changed run is predicted to fit the card, and the figures; None if unknown."""
    if ghost.prediction is None or ghost.prediction.capacity_bytes is None:
        return None, ""
    if ghost.surpassed_by(memory) is not None:
        return None, ""
    try:
        prediction = _predict(changed, memory)
    except VramwiseError as error:
        return None, str(error)
    except Exception as error:
        return None, _fault(error)
    # As in `predict`: what each would reserve with memory to spare.
    before, after = [gib(one.needs.highest_reserved_bytes) for one in (ghost.prediction, prediction)]
    said = f"{before} → {after} reserved of {gib(prediction.capacity_bytes or 0)}"
    if prediction.fits_by_emptying and prediction.bounds is None:
        return True, f"{said}, only by releasing cached memory"
    return prediction.memory_fits, said


def _fault(error: Exception) -> str:
    return f"the prediction of this config failed with an internal error ({type(error).__name__})"


def _predict(subject: Subject, memory: MemoryText | None) -> Prediction:
    return subject.prediction(limit_bytes=memory.allowed_bytes if memory else None)


def _on_the_card(subject: Subject, memory: MemoryText | None, *, named_gpu: bool) -> Subject:
    total = memory.total_bytes if memory else None
    if total is None or named_gpu:
        return subject
    gpu = subject.target.gpu
    if gpu is not None and abs(gpu.memory_bytes - total) < total // 20:
        gpu = replace(gpu, memory_bytes=total)
    else:
        name = f"card of {gib(total)} (from the log)"
        gpu = GpuSpec(
            name=name, vendor="nvidia", memory_bytes=total, capability=None, bf16=True, fp8=False, known=False
        )
    return subject.on_card(gpu)
