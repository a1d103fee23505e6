"""Causes of an out-of-memory by when it happened: load, step 1, step 2, evaluation, checkpoint, or late and rising."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramwise.diagnosis.case import LATE_STEP, Case
from vramwise.diagnosis.evidence import Cause, Quote
from vramwise.recordings.growth import shape
from vramwise.units import largest, readable

# Stages at which a rank puts the whole model on its card.
_WHOLE = {
    "to-device": "the whole model was moved to the card: nothing had sharded or quantised it before",
    "reference": "a second whole model (the reference) was loaded beside the trained one",
    "ddp-init": "DistributedDataParallel keeps the whole model, and buckets for its gradients, on every card",
    "fsdp-init": "the whole model was on the card when FSDP began to shard it",
    "zero-init": "DeepSpeed's initialisation put the whole model on each card before it was sharded",
}
_ABOUT_MEMORY = re.compile(r"memory|vram|\bram\b|usage|leak|\bg(?:i?b|pu)\b|oom|显存|内存|泄", re.IGNORECASE)
# Growth that rows of different length do not explain.
_EACH_STEP = re.compile(
    r"\b(?:a (?:little|bit|few \w+)|slightly|\d+ ?[MG]i?B)\b.{0,30}\b(?:every|each|per)\b"
    r"|\b(?:every|each) step\b.{0,30}\b(?:a little|slightly|\d+ ?[MG]i?B)"
    r"|\bconstant (?:shape|length)|\bslowly\b.{0,40}\b(?:every|each) step|每(?:一)?步.{0,10}[MG]B",
    re.IGNORECASE,
)
# Adam keeps two values of up to four bytes per trained parameter.
_MOST_STATE_BYTES = 8


def optimizer_state(case: Case) -> Iterator[Cause]:
    """Yield optimizer-state: Adam's state is created in the first optimizer step and present from step 2 on."""
    symptom = case.symptom
    shot = case.snapshot
    made_by_optimizer = shot is not None and shot.failing_category == "optimizer"
    if symptom.phase == "optimizer" or made_by_optimizer:
        early = symptom.step is None or symptom.step <= 2
        confidence = 0.92 if early else 0.6
        why = (
            "the traceback ends in the optimizer's step"
            if symptom.phase == "optimizer"
            else "snapshot: the optimizer made the request"
        )
    elif symptom.step == 2 and case.in_step and not symptom.after and not symptom.resumed:
        confidence, why = 0.8, "step 1 ran without optimizer state; step 2 has it from the start"
    elif case.predicted_phase == "optimizer" and case.arithmetic("parameter") and symptom.phase in ("train", ""):
        confidence, why = (
            0.75,
            "the request has the size of a parameter, and the simulation fails in the optimizer, too",
        )
    else:
        return
    evidence = [why, *case.arithmetic("parameter")]
    state = _MOST_STATE_BYTES * case.number("trainable_params")
    if 0 < state < case.requested and confidence == 0.8:
        confidence = 0.3
        asked = readable(case.requested)
        evidence.append(f"but its state is {readable(state)} at most, less than the {asked} requested")
    if shot is not None and shot.by_category.get("optimizer"):
        evidence.append(f"snapshot: {largest(shot.by_category)}")
    yield Cause(
        id="optimizer-state",
        sentence="the optimizer state, which is created at the first step, did not fit",
        confidence=confidence,
        evidence=tuple(evidence),
    )


def evaluation(case: Case) -> Iterator[Cause]:
    """Yield eval-batch for a failure in an evaluation, or after-eval for one in the first step after it."""
    micro, batch = case.micro_batch_size, case.eval_batch_size
    sizes = f"eval batch {batch}, training micro-batch {micro}" if micro and batch else ""
    if case.symptom.phase == "eval":
        yield _in_evaluation(case, sizes)
    elif case.symptom.after == "eval" and case.in_step:
        yield Cause(
            id="after-eval",
            sentence="at the first step after an evaluation, the cache was full of blocks in the evaluation's shapes",
            confidence=0.84,
            evidence=tuple(filter(None, ["no step was completed since the last evaluation", sizes])),
        )


def _in_evaluation(case: Case, sizes: str) -> Cause:
    """Return the eval-batch cause.

    Training steps before the failure show that training fits; the confidence depends on what is known of both batch
    sizes.
    """
    passed = case.steps_passed
    evidence = ["it failed during an evaluation"]
    sentence = "evaluation needs more than training" + (f" ({sizes})" if sizes else "")
    confidence = 0.94 if case.larger_eval_batch else 0.86
    if passed:
        evidence.append(f"{passed} training steps had passed: training fits, but this evaluation does not")
    elif passed == 0 and not case.larger_eval_batch:
        confidence = 0.7
        evidence.append("no training step had passed, so training may not fit either")
    if not case.symptom.first_eval:
        confidence = 0.8 if case.larger_eval_batch else 0.72
        evidence.append("an earlier evaluation had passed: it was close, or memory has grown since")
    if case.symptom.stage == "eval-gather":
        sentence = "evaluation keeps the outputs of all its batches on the GPU, and they did not fit"
        evidence.append(
            "it was concatenating the outputs of its batches; eval_accumulation_steps moves them to the host"
        )
    elif sizes and not case.larger_eval_batch:
        confidence = min(confidence, 0.8)
        sentence = "evaluation needs more than training, although its batch is no larger"
        evidence.append(
            f"{sizes}: longer rows, outputs that are kept, or logits that a fused loss avoids only in training"
        )
    elif sizes:
        evidence.append(sizes)
    return Cause(
        id="eval-batch",
        sentence=sentence,
        confidence=confidence,
        evidence=tuple(evidence),
    )


def saving(case: Case) -> Iterator[Cause]:
    """Yield save-gather for a failure while saving a checkpoint, or after-save for one in the step after it."""
    symptom = case.symptom
    if symptom.kind == "fsdp-clone-oom":
        name = symptom.details.get("name", "a parameter")
        yield Cause(
            id="save-gather",
            sentence=f"saving gathered unsharded parameters on the GPU ({name} could not be copied)",
            confidence=0.96,
            evidence=("FSDP's full state dict clones every parameter, unsharded, on the GPU",),
        )
    elif symptom.stage == "merge":
        yield Cause(
            id="merge",
            sentence="merging the adapter needed a second copy of the weights, in 16 bits, on the GPU",
            confidence=0.86,
            has_rule=False,
            evidence=(case.seen("in merging"),),
        )
    elif symptom.phase == "save":
        files = " ".join(frame.file for frame in symptom.frames)
        sharded = (
            "fsdp" in files
            or "deepspeed" in files
            or (case.run is not None and case.run.sharding.kind not in ("none", "ddp"))
        )
        yield Cause(
            id="save-gather",
            sentence="writing the checkpoint needed a second copy of the parameters on the GPU",
            confidence=0.88 if sharded else 0.6 if "sharded-saving" in case.log.setup.named else 0.78,
            evidence=(case.seen("in saving"), *case.arithmetic("parameter")),
            has_rule=sharded,
        )
    elif symptom.after == "save" and case.in_step:
        yield Cause(
            id="after-save",
            sentence="the first step after a checkpoint failed: saving left blocks of other shapes in the cache",
            confidence=0.55,
            evidence=("no step was completed since the last checkpoint",),
        )


def loading(case: Case) -> Iterator[Cause]:
    """Yield load or resume: a failure while loading the model, or a checkpoint's optimizer state."""
    symptom = case.symptom
    stage = symptom.stage
    if symptom.phase == "load" and not stage.startswith("vllm") and not case.pins_memory:
        said = _WHOLE.get(stage, "the model did not fit while loading, before any training")
        if stage not in _WHOLE and case.cards > 1:
            said += ": each rank moves the whole model to its card unless it is sharded while loading"
        yield Cause(
            id="load",
            sentence=said,
            confidence=0.86,
            evidence=(case.seen("in loading the model"),),
        )
    elif symptom.phase == "resume":
        yield Cause(
            id="resume",
            sentence="resuming loaded the checkpoint's optimizer state onto the GPU in addition to the model",
            confidence=0.75 if symptom.told else 0.9,
            evidence=(case.seen("in loading a checkpoint"),),
        )
    elif case.log.stated.only_on_resume is not None and symptom.phase in ("train", "optimizer", ""):
        yield Cause(
            id="resume",
            sentence="a resumed run needs more than a new one: loaded weights or optimizer state stay on the card",
            confidence=0.75,
            evidence=("it is said to fail only when resuming",),
            quotes=(case.log.stated.only_on_resume,),
        )


def generation(case: Case) -> Iterator[Cause]:
    """Yield generation: a failure while answers are generated in a training run."""
    if case.symptom.stage != "generate":
        return
    yield Cause(
        id="generation",
        sentence=(
            "generation (the rollout) needed more than was left beside training: it keeps a KV cache and logits of "
            "all sequences"
        ),
        confidence=0.85,
        has_rule=False,
        evidence=(case.seen("in generation"),),
    )


def growing(case: Case) -> Iterator[Cause]:
    """Yield leak if memory rises step by step."""
    shot, stated = case.snapshot, case.log.stated
    if shot is not None and shot.growing:
        first = shot.growing[0]
        yield Cause(
            id="leak",
            sentence=(
                f"memory leaks at every step: {readable(first.size_bytes)} in {first.blocks} blocks from {first.place}"
            ),
            confidence=0.95,
            evidence=tuple(
                f"snapshot: {growth.blocks} blocks, {readable(growth.size_bytes)}, of {growth.steps} steps, "
                f"still held: {growth.place}"
                for growth in shot.growing[:3]
            ),
        )
        return
    readings = case.log.memory
    climbs = shape([reading.size_bytes for reading in readings])
    said = stated.grows_steadily or stated.grows_at_save or stated.grows
    if said is not None and climbs != "steady" and _ABOUT_MEMORY.search(said.text):
        when = "with every checkpoint or evaluation" if said is stated.grows_at_save else "at every step"
        if said is not stated.grows_at_save and (case.vision or not _EACH_STEP.search(said.text)):
            yield from _said_to_grow(case, said)
            return
        yield Cause(
            id="leak",
            sentence=f"memory is said to grow {when}: something is kept that should be freed",
            confidence=0.82,
            evidence=(
                "torch.cuda.memory_allocated() after each step tells: only a leak makes it rise steadily; what the "
                "driver shows never falls",
            ),
            quotes=(said,),
        )
        return
    if climbs != "steady":
        return
    first_reading, last = readings[0], readings[-1]
    yield Cause(
        id="leak",
        sentence=(
            f"allocated memory rose steadily, from {readable(first_reading.size_bytes)} to "
            f"{readable(last.size_bytes)}: something is not freed"
        ),
        confidence=0.87,
        evidence=(f"{len(readings)} figures between lines {first_reading.line} and {last.line}, always rising",),
        quotes=(Quote(last.line, f"memory {readable(last.size_bytes)}"),),
    )


def _said_to_grow(case: Case, said: Quote) -> Iterator[Cause]:
    """Yield long-tail and leak for growth that a person tells: each longer batch raises what torch keeps reserved."""
    rows = "a larger image or a longer row" if case.vision else "a longer row"
    yield Cause(
        id="long-tail",
        sentence=(
            f"memory is said to grow. First suspect {rows} than those before: activations grow with batch × length, "
            "and torch keeps each new maximum reserved"
        ),
        confidence=0.62,
        has_rule=False,
        evidence=(
            "a leak only if torch.cuda.memory_allocated() rises after each step with rows of one length: such as "
            "outputs or graphs that are kept (forward passes without backward or torch.no_grad)",
        )
        if "mlx" not in case.log.setup.named
        else ("the rows' length decides: a leak only if the peak rises with rows of one length",),
        quotes=(said,),
    )
    yield Cause(
        id="leak",
        sentence="something may be kept from step to step that should be freed",
        confidence=0.45,
        quotes=(said,),
    )


def long_tail(case: Case) -> Iterator[Cause]:
    """Yield long-tail: a late failure that a longer batch than before may explain."""
    symptom, said = case.symptom, case.log.stated.late
    told_growth = case.log.stated.grows_steadily or case.log.stated.grows
    if said is not None and told_growth is None and symptom.step is None and symptom.phase in ("train", ""):
        yield Cause(
            id="long-tail",
            sentence="training had gone well for a while: a longer batch than those before, or memory that grows",
            confidence=0.62,
            evidence=("what every step needs would have failed at the first steps",),
            quotes=(said,),
        )
    if not case.in_step or symptom.step is None or symptom.step < LATE_STEP or symptom.after:
        return
    run, capacity = case.run, case.capacity
    if run is not None and run.shapes.constant_shapes:
        return
    evidence = [f"{symptom.step - 1} steps passed before it"]
    confidence = 0.55
    if shape([reading.size_bytes for reading in case.log.memory]) == "jumps":
        confidence = 0.76
        evidence.append("the memory figures in the log rise in jumps")
    if capacity and case.requested >= 0.15 * capacity:
        confidence = max(confidence, 0.74)
        evidence.append(f"one request of {readable(case.requested)}, {case.requested / capacity:.0%} of the memory")
    yield Cause(
        id="long-tail",
        sentence="a longer batch needed more memory than earlier ones",
        confidence=confidence,
        evidence=tuple(evidence),
    )
