"""Causes of an out-of-memory outside torch's allocator: libraries, the driver, pinned host memory, vLLM."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.diagnosis.case import Case
from vramwise.diagnosis.evidence import Cause

_WHO = {
    "nccl-oom": "NCCL could not allocate its buffers",
    "cublas-oom": "cuBLAS or cuDNN could not allocate its handle or workspace",
    "bnb-oom": "a bitsandbytes allocation failed",
    "driver-oom": "the driver refused an allocation outside torch's allocator, of the card or of pinned host memory",
}
_VLLM = {
    "vllm-start": "vLLM, starting, found too little free memory for its share of the card",
    "vllm-profile": "vLLM, measuring its largest batch at the start, needed more than was free",
    "vllm-cache": "vLLM's KV cache did not fit beside what else is on the card",
    "vllm-sampler": "vLLM's sampler, warming up with max_num_seqs × vocabulary logits, needed more than was free",
    "vllm-wake": "vLLM, waking from sleep, could not map its weights and cache again: training still holds that memory",
}


def pinned_memory(case: Case) -> Iterator[Cause]:
    """Yield host-memory if the driver refused to pin host memory, which it also reports as out of memory."""
    if not case.pins_memory:
        return
    yield Cause(
        id="host-memory",
        sentence="the driver could not pin so much host memory. This is not a VRAM problem",
        confidence=0.87,
        has_rule=False,
        evidence=(
            "the traceback ends in a copy to pinned (page-locked) host memory",
            "its limit is the machine's RAM, and about half of it under WSL and Windows",
        ),
    )


def vllm_memory(case: Case) -> Iterator[Cause]:
    """Yield vllm-memory if a part of vLLM, beside the trainer, found no memory; outside-torch if it was waking up."""
    sleeping = case.symptom.kind == "vllm-cumem"
    said = _VLLM.get("vllm-wake" if sleeping else case.symptom.stage)
    if said is not None:
        yield Cause(
            id="outside-torch" if sleeping else "vllm-memory",
            sentence=said,
            confidence=0.85,
            has_rule=False,
            evidence=("vLLM takes its share of the card outside the training's allocator",),
        )


def outside_torch(case: Case) -> Iterator[Cause]:
    """Yield outside-torch if a library that allocates outside torch's allocator found no memory left."""
    who = _WHO.get(case.symptom.kind)
    if who is None or case.pins_memory:
        return
    evidence = ["allocations outside torch cannot use the memory that torch keeps cached"]
    vague = "NOT_INITIALIZED" in case.symptom.quote.text
    if vague:
        evidence.append("a handle could not be created: usually for lack of memory, sometimes after another CUDA error")
    yield Cause(
        id="outside-torch",
        sentence=f"{who}: too little of the card was free",
        confidence=0.65 if vague else 0.8,
        evidence=tuple(evidence),
    )
