"""The cause of an out-of-memory in a run that a text describes: what the run as described would need."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.diagnosis.case import Case
from vramwise.diagnosis.causes import figures
from vramwise.diagnosis.evidence import Cause, Setup
from vramwise.units import gib


def capacity(case: Case) -> Iterator[Cause]:
    """Yield capacity: the run as described does not fit, or else what the message's figures say."""
    prediction = case.told.prediction if case.told is not None else None
    if case.weights_alone and case.card is not None:
        yield Cause(
            id="capacity",
            sentence=(
                f"the weights alone take {gib(case.weights_alone)}, and the card has {gib(case.card.memory_bytes)}: "
                "several cards do not pool their memory, each process holds a whole copy unless the model is sharded"
            ),
            confidence=0.75,
            evidence=(f"{case.parameters:,} parameters", *told_lines(case)),
        )
        return
    if prediction is None or prediction.memory_fits is not False or case.memory.allocated_bytes is not None:
        yield from figures.capacity(case)
        return
    needed, there = gib(prediction.needs.highest_reserved_bytes), gib(prediction.capacity_bytes or 0)
    yield Cause(
        id="capacity",
        sentence=f"the run as described needs more memory than the card has: about {needed} of {there}",
        confidence=0.75,
        evidence=told_lines(case),
    )


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
