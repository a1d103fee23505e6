"""Failures whose text says the cause: dtypes, alignment, host memory, settings that fail late."""

from __future__ import annotations

from typing import NamedTuple

from vramwise.diagnosis.case import Case
from vramwise.diagnosis.evidence import Cause


class Known(NamedTuple):
    """What a text means."""

    cause: str
    sentence: str
    confidence: float = 0.95


_DETAILS = (
    *("left", "right", "divisor", "shape", "optimizer", "required", "limit"),
    *("free", "total", "share", "wanted", "op"),
)
_FP16 = "trainable weights are fp16 under the fp16 gradient scaler, which takes no fp16 gradients"
_OPERANDS = "operands of two dtypes met ({left} and {right}): parts of the model differ, and no autocast joins them"

KNOWN = {
    "unscale-fp16": Known("fp16-trainable-weights", _FP16),
    "unscale-bf16": Known(
        "fp16-scaler-bf16-weights",
        "fp16 is on, but the trainable weights are bf16: the gradient scaler does not take bf16 gradients",
    ),
    "mixed-operands": Known("mixed-operands", _OPERANDS, 0.92),
    "numpy-bf16": Known(
        "dtype-not-implemented", "a bf16 tensor was given to numpy, which has no bf16: convert it with .float()"
    ),
    "fp16-overflow": Known(
        "fp16-overflow", "values or gradients left the range of fp16 (65504), at any loss scale", 0.9
    ),
    "flash-dtype": Known(
        "flash-needs-half",
        "FlashAttention got fp32 queries, keys and values: norms or embeddings are in fp32",
    ),
    "flash-dtype-or-card": Known(
        "flash-needs-half",
        "FlashAttention takes fp16, and bf16 from Ampere on: it got another dtype, or bf16 on an older card",
        0.85,
    ),
    "vllm-share": Known(
        "vllm-share",
        "vLLM was to take {share} of the card ({wanted} GiB), and {free} of its {total} GiB were free when it started",
    ),
    "vllm-cache": Known(
        "vllm-cache",
        "beside the model, vLLM's share of the card leaves no room for a cache of its longest sequence",
    ),
    "nccl-timeout": Known(
        "nccl-timeout",
        "a collective ({op}) timed out: one rank came late or had ended, and its own lines say why; no matter of VRAM",
        0.7,
    ),
    "flash-card": Known("flash-card", "this card is too old for FlashAttention 2"),
    "bf16-unsupported": Known("bf16-unsupported", "bf16 (or tf32) was asked of a card that has none"),
    "fsdp-mixed-dtypes": Known(
        "fsdp-mixed-dtypes",
        "FSDP1 flattens the parameters of a block into one, but they are of two dtypes ({left} and {right})",
    ),
    "fsdp2-mixed-dtypes": Known(
        "fsdp-mixed-dtypes",
        "FSDP2 shards the parameters of a block together, but they are of two dtypes ({left} and {right})",
    ),
    "fsdp-mixed-frozen": Known(
        "fsdp-mixed-frozen",
        "FSDP1 flattens frozen and trainable parameters into one, which cannot be",
    ),
    "fp8-alignment": Known(
        "fp8-alignment",
        "fp8 needs token counts that divide by {divisor}, and a batch was of shape {shape}",
    ),
    "auto-batch-exhausted": Known(
        "auto-batch-exhausted",
        "auto_find_batch_size shrank the training batch to nothing: what did not fit was something else, often an eval",
        0.93,
    ),
    "offload-tracker": Known(
        "offload-tracker",
        "streamed activation offloading lost track of a tensor in the backward pass",
    ),
    "optimizer-unhandled": Known(
        "optimizer-unhandled",
        "optimizer '{optimizer}' passes the config's checks, but no trainer code makes it",
        0.98,
    ),
    "paged-unsupported": Known(
        "paged-unsupported",
        "a paged optimizer needs managed memory, which this machine does not offer (WSL, vGPU, MIG)",
        0.9,
    ),
    "bnb-8bit-save": Known(
        "bnb-8bit-save",
        "saving an 8-bit model rebuilds a second copy of each weight on the GPU in this bitsandbytes (before 0.39)",
        0.85,
    ),
    "kernel-shared-memory": Known(
        "kernel-shared-memory",
        "a Triton kernel wants {required} bytes of shared memory and this card has {limit}: no matter of VRAM",
    ),
    "does-not-fit": Known(
        "load",
        "the quantised model does not fit the GPU: parts were to go to the CPU or the disk, where they cannot run",
        0.93,
    ),
    "absurd-size": Known(
        "absurd-size",
        "more than 2⁶⁰ bytes were asked for: no lack of memory but a wrong size, such as one that another rank sent",
        0.9,
    ),
    "nccl-shm": Known("host-shared-memory", "NCCL found /dev/shm too small: no matter of VRAM", 0.9),
    "host-killed": Known(
        "host-memory",
        "the process was killed from outside (SIGKILL), as the kernel does when host memory runs out",
        0.8,
    ),
    "host-oom-killer": Known("host-memory", "host memory ran out and the kernel killed the process", 0.97),
    "host-worker-killed": Known("host-memory", "a data loader worker was killed: host memory ran out", 0.93),
    "host-worker-died": Known(
        "host-memory",
        "a process that prepared the dataset died without a word, as when host memory runs out",
        0.7,
    ),
    "host-bus-error": Known(
        "host-shared-memory", "the process died of SIGBUS (−7), as when shared memory (/dev/shm) is full", 0.65
    ),
    "host-allocation": Known("host-memory", "an allocation of host memory failed: no matter of VRAM", 0.93),
    "host-shared-memory": Known("host-shared-memory", "data loader workers ran out of shared memory (/dev/shm)", 0.93),
}


def known_cause(case: Case) -> Cause | None:
    """The cause that the text of a symptom states, or None."""
    symptom = case.symptom
    if symptom.kind in ("recompute-differs", "recompute-metadata", "recompute-count"):
        return _recompute(case)
    if symptom.kind == "dtype-not-implemented":
        return _not_implemented(case)
    known = KNOWN.get(symptom.kind)
    if known is None:
        return None
    details = {name: symptom.details.get(name, "?") for name in _DETAILS}
    sentence = known.sentence.format(**details).replace(" (? and ?)", "").replace(" (?)", "")
    if symptom.kind == "fp8-alignment" and details["shape"] == "?":
        sentence = sentence.partition(", and a batch")[0]
    without_fp16 = symptom.kind == "mixed-operands" and "half" not in f"{details['left']} {details['right']}".lower()
    return Cause(
        id=known.cause,
        sentence=sentence,
        confidence=known.confidence,
        has_rule=symptom.kind != "fsdp2-mixed-dtypes" and not without_fp16,
        quotes=(symptom.quote,),
    )


def _recompute(case: Case) -> Cause:
    details = case.symptom.details
    shape = details.get("recomputed_shape", details.get("shape", "?"))
    saved, again = details.get("saved_dtype"), details.get("recomputed_dtype", details.get("dtype"))
    if shape.strip() == "0":
        return Cause(
            id="recompute-freed-weights",
            sentence="ZeRO-3 had freed the weights when non-reentrant checkpointing recomputed with them (shape [0])",
            confidence=0.95,
            quotes=(case.symptom.quote,),
        )
    before = details.get("saved_shape", "?")
    differ = "?" not in (before, shape) and before != shape
    if case.symptom.kind == "recompute-count" or differ or (saved and saved == again):
        shapes = f" (shape [{before}], then [{shape}])" if differ else ""
        return Cause(
            id="recompute-changed",
            sentence=f"the recomputed forward did other work than the first{shapes}: it depends on something that "
            "changed between them, such as a cache that grows or the routing of experts",
            confidence=0.85,
            quotes=(case.symptom.quote,),
        )
    if not (saved and again):
        return Cause(
            id="recompute-changed",
            sentence="the recomputed forward made other tensors than the first: the log is cut off before it says "
            "whether their shapes differed or their dtypes",
            confidence=0.6,
            quotes=(case.symptom.quote,),
        )
    return Cause(
        id="recompute-dtype",
        sentence=f"the recomputed forward ran in another dtype than the first ({saved}, then {again}): "
        "autocast differed between them",
        confidence=0.93,
        quotes=(case.symptom.quote,),
    )


def _not_implemented(case: Case) -> Cause:
    """Kernels for the GPU have cuda in their name; the others are the CPU's."""
    op, dtype = case.symptom.details["op"], case.symptom.details["dtype"]
    on_gpu = "cuda" in op.lower()
    where = "this torch's CUDA build" if on_gpu else "the CPU"
    why = "" if on_gpu else ": part of the model is on the CPU"
    return Cause(
        id="dtype-not-implemented",
        sentence=f"an operation ({op}) does not exist for {dtype} on {where}{why}",
        confidence=0.9,
        quotes=(case.symptom.quote,),
    )
