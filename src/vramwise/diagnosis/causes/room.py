"""Causes of an out-of-memory by arithmetic: what was free, what was requested, who held the rest.

Not by phase or step.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.diagnosis.case import Case
from vramwise.diagnosis.evidence import Cause
from vramwise.diagnosis.read.phases import in_pinning
from vramwise.units import GIB, MIB, largest, readable

# The most a process uses outside torch's allocator (context, kernels, NCCL). More than this belongs to other processes.
_OUTSIDE_BYTES = 2 * GIB
# Smaller requests say nothing about fragmentation: the allocator always has some.
_SMALL_REQUEST = 64 * MIB
# Every run has less fragmentation than this share of the card; removing it would not have helped for long.
_MUCH = 0.02


def other_process(case: Case) -> Iterator[Cause]:
    """Yield other-process if memory of the card is held neither by torch nor by this process."""
    memory = case.memory
    total, free, reserved = memory.total_bytes, memory.free_bytes, memory.reserved_bytes
    if total is None or free is None or reserved is None or memory.wording == "async":
        return
    taken = total - free - reserved
    if memory.this_process_bytes is not None:
        others = total - free - memory.this_process_bytes
        said = (
            f"{readable(memory.this_process_bytes)} in use by this process: {readable(others)} belong to other "
            "processes"
        )
    else:
        others = taken - _OUTSIDE_BYTES
        said = (
            f"{readable(reserved)} reserved by torch, so {readable(taken)} are used outside torch: up to "
            f"{readable(_OUTSIDE_BYTES)} of that may be this process's own context and kernels, and at least "
            f"{readable(others)} belong to other processes"
        )
    if others < max(GIB, total // 20) or memory.allowed_bytes is not None:
        return
    at_least = "at least " if memory.this_process_bytes is None else ""
    enough = case.requested <= free + others
    yield Cause(
        id="other-process",
        sentence=f"other processes hold {at_least}{readable(others)} of this card's {readable(total)}",
        confidence=0.9 if enough and others >= case.requested else 0.45,
        evidence=(f"{readable(total)} on the card, {readable(free)} free, {said}",),
    )


def fragmentation(case: Case) -> Iterator[Cause]:
    """Yield fragmentation if enough memory was available, but not in one piece."""
    memory, requested = case.memory, case.requested
    if memory.wording == "async":
        yield from _async_pool(case)
        return
    unallocated, room, capacity = memory.unallocated_bytes, memory.room_bytes, case.capacity
    if unallocated is None or not requested:
        return
    there = case.there_bytes
    share = unallocated / (capacity or memory.reserved_bytes or 1)
    large = requested >= _SMALL_REQUEST and unallocated * 2 >= requested
    confidence = 0.0
    if requested <= there and (large or share >= 0.1):
        confidence = 0.85 if unallocated >= requested and share >= 0.1 else 0.72 if share >= _MUCH else 0.45
    elif unallocated >= requested:
        confidence = 0.3
    evidence = [
        f"{readable(unallocated)} reserved but unallocated, {readable(room or 0)} still free: {readable(there)} for a "
        f"request of {readable(requested)}"
    ]
    confidence, more = _by_replay(case, confidence, large or share >= 0.05)
    if case.expandable and confidence:
        confidence *= 0.6
        evidence.append("expandable segments were on, which leave little to fragment")
    elif case.expandable is None and case.expandable_by_config and confidence:
        confidence *= 0.9
        evidence.append("the trainer turns expandable segments on: this run must have been started without them")
    if confidence >= 0.2:
        yield Cause(
            id="fragmentation",
            sentence=(
                f"{readable(unallocated)} of reserved memory was in pieces too small for a request of "
                f"{readable(requested)}"
            ),
            confidence=confidence,
            evidence=(*evidence, *more),
        )


def _by_replay(case: Case, confidence: float, matters: bool) -> tuple[float, list[str]]:
    """Return confidence and evidence with the snapshot's: the largest hole, and a replay with expandable segments."""
    shot = case.snapshot
    if shot is None or not shot.failed:
        return confidence, []
    said = [
        f"snapshot: {shot.holes} holes, the largest {readable(shot.largest_hole_bytes)}, "
        f"for {readable(shot.requested_bytes)}"
    ]
    for outcome in shot.what_if:
        if outcome.settings == "expandable_segments:True":
            would = "would have succeeded" if outcome.served else "would have failed too"
            said.append(f"replayed with {outcome.settings}: {would}")
            served = max(confidence, 0.96 if matters else 0.5)
            confidence = served if outcome.served else min(confidence, 0.25)
    return confidence, said


def _async_pool(case: Case) -> Iterator[Cause]:
    memory = case.memory
    total, allocated, free = memory.total_bytes or 0, memory.allocated_bytes or 0, memory.free_bytes or 0
    stuck = total - allocated - free
    if stuck > case.requested:
        yield Cause(
            id="fragmentation",
            sentence=(f"cudaMallocAsync's pool held {readable(stuck)} that no tensor used but that it could not reuse"),
            confidence=0.75,
            evidence=(
                f"limit {readable(total)}, allocated {readable(allocated)}, free {readable(free)}: "
                f"{readable(stuck)} unaccounted for",
            ),
        )


def impossible_request(case: Case) -> Iterator[Cause]:
    """Yield impossible-request if one request exceeds the whole card: a wrong shape, or a quadratic one."""
    capacity = case.capacity
    if not capacity or case.requested <= capacity:
        return
    yield Cause(
        id="impossible-request",
        sentence=(
            f"one request takes {readable(case.requested)}, {case.requested / capacity:.1f} times all available "
            "memory: a wrong shape, or one that grows with the square of the length; a smaller batch would not help"
        ),
        confidence=0.78,
        evidence=(
            "such requests come from a length × length mask or score matrix, a wrong index or row length, or a resize "
            "by a wrong number",
        ),
    )


def oversized_batch(case: Case) -> Iterator[Cause]:
    """Yield oversized-batch if one request takes a quarter of the card or more: too many tokens in one micro-batch."""
    capacity = case.capacity
    if (
        not capacity
        or not 0.25 * capacity <= case.requested <= capacity
        or case.requested <= (case.memory.room_bytes or 0)
    ):
        return
    yield Cause(
        id="oversized-batch",
        sentence=(
            f"one request takes {readable(case.requested)}, {case.requested / capacity:.0%} of "
            f"{'what the process may use' if case.memory.allowed_bytes is not None else 'the card'}"
        ),
        confidence=0.7,
        evidence=("a row filled to its limit (packed, or a long sample) costs its full length, whatever came before",),
    )


def capacity(case: Case) -> Iterator[Cause]:
    """Yield capacity: the run needs more memory than there is."""
    memory, requested = case.memory, case.requested
    if memory.allocated_bytes is None or not requested:
        yield Cause(
            id="capacity",
            sentence="the card's memory was used up",
            confidence=0.5,
            evidence=("the message gives no figures",),
        )
        return
    bound = case.capacity
    of = f" of {readable(bound)}" if bound else ""
    needed = requested > case.there_bytes
    share = (memory.unallocated_bytes or 0) / (bound or memory.reserved_bytes or 1)
    confidence = 0.66 if needed else 0.5 if requested < _SMALL_REQUEST or share < _MUCH else 0.3
    held, replays_fail = _held(case)
    if needed and replays_fail and not case.steps_passed:
        confidence = 0.7
    yield Cause(
        id="capacity",
        sentence=(
            f"the run needs more memory than available: {readable(memory.allocated_bytes)}{of} were allocated when "
            f"{readable(requested)} more were requested"
        ),
        confidence=confidence,
        evidence=(
            f"{readable(memory.room_bytes or 0)} still free and {readable(memory.unallocated_bytes or 0)} in pieces, "
            f"for a request of {readable(requested)}",
            *held,
        ),
    )


def _held(case: Case) -> tuple[list[str], bool]:
    """Return what a snapshot adds: who held the memory, and whether the request fails under all other settings too."""
    shot = case.snapshot
    if shot is None or not shot.failed:
        return [], False
    said = [f"snapshot: {largest(shot.by_category)}"]
    fails = bool(shot.what_if) and not any(outcome.served for outcome in shot.what_if)
    return [*said, "replayed with other allocator settings: would have failed too"] if fails else said, fails


def outside_torch(case: Case) -> Iterator[Cause]:
    """Yield outside-torch if a library that allocates outside torch's allocator found no memory left."""
    who = {
        "nccl-oom": "NCCL could not allocate its buffers",
        "cublas-oom": "cuBLAS or cuDNN could not allocate its handle or workspace",
        "bnb-oom": "a bitsandbytes allocation failed",
        "vllm-cumem": "vLLM, waking from sleep, could not map its weights and cache again",
        "driver-oom": "the driver had no memory left for an allocation outside torch's allocator",
    }.get(case.symptom.kind)
    if who is None:
        return
    if case.symptom.kind == "driver-oom" and in_pinning(case.symptom.frames):
        yield Cause(
            id="host-memory",
            sentence="the driver could not pin so much host memory. This is not a VRAM problem",
            confidence=0.85,
            has_rule=False,
            evidence=("the traceback ends in host memory pinning",),
        )
        return
    evidence = ["allocations outside torch cannot use the memory that torch keeps cached"]
    vague = "NOT_INITIALIZED" in case.symptom.quote.text
    if vague:
        evidence.append("a handle could not be created: usually for lack of memory, sometimes after another CUDA error")
    yield Cause(
        id="outside-torch",
        sentence=f"{who}: torch had reserved the rest of the card",
        confidence=0.65 if vague else 0.8,
        evidence=tuple(evidence),
    )
