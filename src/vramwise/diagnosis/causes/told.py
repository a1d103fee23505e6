"""The cause of an out-of-memory in a run that a text describes: what the run as described would need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vramwise.diagnosis.case import Case
from vramwise.diagnosis.causes import figures
from vramwise.diagnosis.causes.resident import resident_of
from vramwise.diagnosis.circumstances import circumstances
from vramwise.diagnosis.evidence import Cause, Setup
from vramwise.units import gib

_TOO_LARGE = (
    "the run as described leaves no room for activations",
    "the run as described needs more memory than the card has, before any activation",
)


def capacity(case: Case) -> Iterator[Cause]:
    """Yield capacity: the run as described does not fit, or else what the message's figures say."""
    prediction = case.told.prediction if case.told is not None else None
    resident = resident_of(case)
    if resident is not None and resident.too_large and not (case.memory.allocated_bytes and not case.symptom.told):
        whole = (
            ". As described, nothing shards it: each process holds a whole copy, and the cards' memory does not add up"
            if resident.whole
            else ""
        )
        yield Cause(
            id="capacity",
            sentence=f"{_TOO_LARGE[resident.exceeds]}: {resident.sentence}{whole}",
            confidence=0.8,
            evidence=("a smaller batch, shorter rows or checkpointing change nothing of that", *told_lines(case)),
        )
        return
    if resident is not None and resident.large_adapter:
        yield Cause(
            id="capacity",
            sentence=f"the adapter is large ({case.number('trainable_params'):,} parameters): {resident.sentence}",
            confidence=0.65,
            evidence=("an adapter's weights, gradients and AdamW's state take 16 bytes for each parameter",),
        )
        return
    if prediction is None or prediction.memory_fits is not False or case.memory.allocated_bytes is not None:
        for cause in figures.capacity(case):
            yield replace(cause, evidence=(*cause.evidence, *_beside(case)))
        return
    needed, there = gib(prediction.needs.highest_reserved_bytes), gib(prediction.capacity_bytes or 0)
    yield Cause(
        id="capacity",
        sentence=f"the run as described needs more memory than the card has: about {needed} of {there}",
        confidence=0.75,
        evidence=told_lines(case),
    )


def _beside(case: Case) -> Iterator[str]:
    words = circumstances(case)
    if case.symptom.told and {"zero3", "fsdp", "split", "several-cards"} & words == {"several-cards"}:
        yield "unless the model is sharded, each process holds a whole copy: more cards leave no more room on each"
    if case.symptom.told and "quantised" in words:
        yield "4 bits shrink the frozen weights only: activations grow with batch × length, and take as much as before"


def told_lines(case: Case) -> tuple[str, ...]:
    """Return what the simulation of the described run says; empty if there is none."""
    prediction = case.told.prediction if case.told is not None else None
    if prediction is None:
        return ()
    needed, there = gib(prediction.needs.highest_reserved_bytes), gib(prediction.capacity_bytes or 0)
    return (f"simulated from the description ({_described(case.log.setup)}): {needed} reserved of {there}",)


def _described(setup: Setup) -> str:
    parts = (
        setup.model,
        setup.method,
        f"ZeRO {setup.zero_stage}" if setup.zero_stage is not None else "FSDP" if setup.fsdp else None,
        f"{setup.cards} cards" if setup.cards else None,
        f"{setup.sequence_len} tokens" if setup.sequence_len else None,
        f"micro-batch {setup.micro_batch}" if setup.micro_batch else None,
        "with gradient checkpointing and a fused loss",
    )
    return ", ".join(part for part in parts if part)
