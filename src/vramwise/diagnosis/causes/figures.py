"""Causes of an out-of-memory by the figures of its message: what was free, what was requested, who held the rest.

Not by phase or step.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.diagnosis.case import Case
from vramwise.diagnosis.evidence import Cause, Process
from vramwise.units import GIB, MIB, largest, readable

# The most a process uses outside torch's allocator (context, kernels, NCCL). More than this belongs to other processes.
_OUTSIDE_BYTES = 2 * GIB
# Smaller requests say nothing about fragmentation: the allocator always has some.
_SMALL_REQUEST = 64 * MIB
# Every run has less fragmentation than this share of the card; removing it would not have helped for long.
_MUCH = 0.02
# Free memory beyond this, above the request, is no shortage: the driver keeps less back, and torch asks for segments of
# at most this size beyond a request.
_PLENTY = GIB
# A process that only opened a context (and NCCL's buffers) on a card: not more than this.
_CONTEXT_BYTES = GIB
# The ranks of a launch get process ids close to each other.
_NEAR = 64


def not_a_shortage(case: Case) -> Iterator[Cause]:
    """Yield not-a-shortage if the message itself says that far more was free than requested."""
    memory, requested = case.memory, case.requested
    if (said := case.log.stated.gpu_has_room) is not None and memory.free_bytes is None and not case.pins_memory:
        yield Cause(
            id="not-a-shortage",
            sentence="the card is said to have room left: the limit is elsewhere, as in pinned memory or a quota",
            confidence=0.7 if case.symptom.kind == "driver-oom" else 0.4,
            has_rule=False,
            evidence=("what the text says of the card's memory contradicts a shortage",),
            quotes=(said,),
        )
        return
    if (
        not memory.wording.startswith("torch")
        or memory.allowed_bytes is not None
        or not requested
        or memory.free_bytes is None
    ):
        return
    free = memory.free_bytes
    if free < 2 * requested or free < requested + _PLENTY:
        return
    sleeping = case.uses_vllm
    who = "something else refused it, or freed memory only after the request"
    if sleeping:
        who = "the driver refused to map memory, as after vLLM's sleeping allocator failed"
    yield Cause(
        id="not-a-shortage",
        sentence=(
            f"torch reports it, but {readable(free)} of the card were free for a request of "
            f"{readable(requested)}. That is not a shortage: {who}"
        ),
        confidence=0.9 if sleeping else 0.8,
        has_rule=False,
        evidence=(f"{readable(free)} free by the message's own figures",),
    )


def rank_contexts(case: Case) -> Iterator[Cause]:
    """Yield rank-contexts if the other processes on the card are the run's other ranks with a context on it."""
    others, said = sibling_contexts(case), case.log.stated.extra_processes
    if said is not None and not others:
        yield Cause(
            id="rank-contexts",
            sentence=(
                "the other processes on the first card are the run's other ranks: each opened a context on it, because "
                "something touched CUDA before the rank had chosen its own card"
            ),
            confidence=0.84,
            has_rule=False,
            evidence=("a context takes some 500 MiB; collectives and copies without a device then land there, too",),
            quotes=(said,),
        )
    if not others:
        return
    held = sum(process.size_bytes for process in others)
    yield Cause(
        id="rank-contexts",
        sentence=(
            f"the card is full, and {len(others)} other ranks of this run hold {readable(held)} of it: each opened a "
            f"context ({readable(others[0].size_bytes)}) on this card, too"
        ),
        confidence=0.6 if held >= case.requested else 0.4,
        has_rule=False,
        evidence=(
            f"{len(others)} processes of {readable(min(others, key=_size).size_bytes)} to "
            f"{readable(max(others, key=_size).size_bytes)} with neighbouring ids "
            f"({min(others).pid} to {max(others).pid})",
        ),
    )


def sibling_contexts(case: Case) -> list[Process]:
    """Return the other processes on the card if they are sibling ranks: small, alike, and with neighbouring ids."""
    memory = case.memory
    others = list(memory.processes)
    own = next((process for process in others if process.size_bytes == memory.this_process_bytes), None)
    if own is not None:
        others.remove(own)
    if len(others) < 2:
        return []
    small, large = min(map(_size, others)), max(map(_size, others))
    ids = [process.pid for process in memory.processes]
    alike = large <= _CONTEXT_BYTES and large <= 1.5 * small
    return sorted(others) if alike and max(ids) - min(ids) <= _NEAR else []


def _size(process: Process) -> int:
    return process.size_bytes


def other_process(case: Case) -> Iterator[Cause]:
    """Yield other-process if memory of the card is held neither by torch nor by this process."""
    memory = case.memory
    total, free, reserved = memory.total_bytes, memory.free_bytes, memory.reserved_bytes
    if total is None or free is None or reserved is None or memory.wording == "async" or sibling_contexts(case):
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
        confidence=0.3 if case.requested <= free else 0.9 if enough and others >= case.requested else 0.45,
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
            "memory: attention scores or a mask that grow with the square of the length, or a wrong shape"
        ),
        confidence=0.78,
        evidence=(
            "such requests come from attention that stores its scores (batch × heads × length²), a length × length "
            "mask, the patches of large images, a wrong index or row length, or a resize by a wrong number",
        ),
    )


def absurd_size(case: Case) -> Iterator[Cause]:
    """Yield absurd-size if the text names a size that no run needs."""
    if (said := case.log.stated.absurd_size) is not None:
        yield Cause(
            id="absurd-size",
            sentence=(
                "a size that no run needs was requested: a wrong number (a corrupt shape, or a fault of this version "
                "of the library), not a lack of memory"
            ),
            confidence=0.9,
            has_rule=False,
            quotes=(said,),
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
            sentence=f"{'the Mac' if 'mlx' in case.log.setup.named else 'the card'}'s memory was used up",
            confidence=0.5,
            evidence=("the message gives no figures", *_states(case), *_images(case)),
        )
        return
    bound = case.capacity
    of = f" of {readable(bound)}" if bound else ""
    needed = requested > case.there_bytes
    share = (memory.unallocated_bytes or 0) / (bound or memory.reserved_bytes or 1)
    full = bound is not None and memory.allocated_bytes >= 0.9 * bound and share < _MUCH
    confidence = 0.66 if needed else 0.6 if full else 0.5 if requested < _SMALL_REQUEST or share < _MUCH else 0.3
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
            *_spilled(case),
            *_states(case),
            *_images(case),
            *held,
        ),
    )


def _spilled(case: Case) -> list[str]:
    memory = case.memory
    if not memory.total_bytes or (memory.allocated_bytes or 0) <= memory.total_bytes:
        return []
    return ["more was allocated than the card has: the driver (Windows, WSL) had spilled into shared host memory"]


def _images(case: Case) -> list[str]:
    if not case.vision:
        return []
    return [
        "the model reads images: each adds tokens by its pixels, up to thousands, whatever the limit on text tokens"
    ]


def _states(case: Case) -> list[str]:
    """Return what the trained parameters alone take, if the log prints their number."""
    trained, everything = case.number("trainable_params"), case.number("all_params")
    if case.run is not None:
        off = not case.run.savings.recompute and case.run.savings.activation_offloading == "off"
        return ["gradient checkpointing is off in this config: every layer keeps its activations"] if off else []
    if not trained:
        frames = case.symptom.frames
        with_adapter = case.log.setup.method in ("lora", "qlora") or any("peft" in frame.file for frame in frames)
        if with_adapter or case.symptom.phase not in ("backward", "optimizer") or case.steps_passed:
            return []
        return [
            "no adapter is in sight: the weights, gradients and AdamW's state of a full fine-tune take 16 bytes a "
            f"parameter ({readable(16 * 7 * 10**9)} for 7B), whatever the batch"
        ]
    share = f", {trained / everything:.0%} of the model" if everything and trained <= everything else ""
    return [
        f"{trained:,} parameters are trained{share}: weights, gradients and AdamW's state take "
        f"{readable(16 * trained)} in mixed precision, divided by the cards only if they are sharded"
    ]


def _held(case: Case) -> tuple[list[str], bool]:
    """Return what a snapshot adds: who held the memory, and whether the request fails under all other settings too."""
    shot = case.snapshot
    if shot is None or not shot.failed:
        return [], False
    said = [f"snapshot: {largest(shot.by_category)}"]
    fails = bool(shot.what_if) and not any(outcome.served for outcome in shot.what_if)
    return [*said, "replayed with other allocator settings: would have failed too"] if fails else said, fails
