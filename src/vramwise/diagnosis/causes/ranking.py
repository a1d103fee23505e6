"""Rank causes: which symptom of a log is the failure, what may have caused it, and how likely each cause is.

The first failure of a run is the one to explain; what follows (other ranks, watchdogs, exit codes) is aftermath. A text
that states its cause goes before one that needs reasoning, unless it only reports how the process ended. For an
out-of-memory, each witness function looks for one cause and returns its confidence and evidence.

Confidence is a judgement, not a frequency: 0.9 and more for direct evidence (a traceback inside the optimizer at the
first step, a replay that serves the request), about 0.7 if arithmetic or position points one way, 0.5 and less if it is
merely compatible. The ghost run raises or lowers it afterwards.

What was requested, and why the request failed, are two true answers to one failure. A request for logits says what was
requested. If earlier steps had the same logits, it does not say why this one failed. A cause that does (the evaluation
batch, new optimizer state, leaked memory, other processes, fragmentation) goes first, with what was requested in its
evidence; the other ranks behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from vramwise.diagnosis.case import Case
from vramwise.diagnosis.causes import figures, moment, outside, request, told
from vramwise.diagnosis.causes.host import host_budget
from vramwise.diagnosis.causes.known import known_cause
from vramwise.diagnosis.causes.not_memory import failure_beside_memory
from vramwise.diagnosis.evidence import Cause, Symptom
from vramwise.diagnosis.read.phases import in_loss
from vramwise.trainers.rulebook import all_rules
from vramwise.units import readable
from vramwise.variants.verdict import NAMES

OUT_OF_MEMORY = frozenset(
    (
        *("cuda-oom", "cuda-oom-warning", "fsdp-clone-oom", "nccl-oom", "bnb-oom", "cublas-oom", "driver-oom"),
        *("vllm-share", "vllm-cache", "vllm-cumem"),
    )
)
# Parts of a run that use the card: a text that says that RAM ran out tells of a second failure there.
ON_CARD = ("forward", "loss", "backward", "clip", "optimizer")
# Those whose text already states the cause.
_SAYS_IT = frozenset(("vllm-share", "vllm-cache"))
# With equal confidence, the earlier one goes first.
_WITNESSES: tuple[Callable[[Case], Iterator[Cause]], ...] = (
    *(figures.not_a_shortage, figures.other_process, figures.fragmentation, moment.growing),
    *(request.logits, request.eager_attention, request.masked_attention),
    *(moment.optimizer_state, moment.evaluation, moment.saving, moment.loading, moment.generation, moment.long_tail),
    *(figures.impossible_request, figures.absurd_size, figures.oversized_batch),
    *(outside.pinned_memory, outside.vllm_memory, outside.outside_torch, figures.rank_contexts, told.capacity),
)
_LEAST = 0.15
_MOST_CAUSES = 6
# A less certain cause is not moved ahead of others.
_SURE = 0.7
# Causes that say what was requested → the kind of factors that matches.
_WHAT = {"logits": "logits", "eager-attention": "scores", "oversized-batch": "", "impossible-request": ""}
# Why now: something differs from the steps that passed.
_NOW = frozenset(
    ("eval-batch", "after-eval", "optimizer-state", "save-gather", "leak", "load", "generation", "vllm-memory")
)
# Why at all: without this the memory would have been enough at any step.
_AT_ALL = frozenset(("fragmentation", "other-process", "not-a-shortage"))
_BEHIND = 0.9


def failure_of(symptoms: Sequence[Symptom]) -> Symptom | None:
    """Return the symptom to explain; None if there are no symptoms.

    A logger may report an exception before its traceback is printed: then the symptom with the same content and a
    traceback is returned.
    """
    first = min(symptoms, key=_class, default=None)
    if first is None or first.frames:
        return first
    said = (first.kind, first.rank, first.memory)
    again = (other for other in symptoms if (other.kind, other.rank, other.memory) == said and other.frames)
    return next(again, first)


def _class(symptom: Symptom) -> int:
    """Return the rank of a kind of symptom: the first symptom of the lowest class is the failure."""
    if symptom.kind in ("auto-batch-exhausted", "bnb-8bit-save", "nccl-pinned"):
        return 0  # says what earlier failures led to
    if symptom.kind in ("host-killed", "exception"):
        return 3
    if symptom.kind in ("aftermath", "nccl-timeout"):
        return 4
    if symptom.kind == "launcher-kill":
        return 5
    if symptom.kind in ("saved-metadata", "recompute-metadata", "cuda-oom-warning"):
        return 2
    return 1


def rank_causes(case: Case) -> list[Cause]:
    """Return all causes worth reporting, likeliest first."""
    pinned = case.pins_memory and case.symptom.kind == "exception"
    known = next(outside.pinned_memory(case)) if pinned else known_cause(case) or failure_beside_memory(case)
    if known is not None and known.id == "host-memory":
        known = replace(known, evidence=(*known.evidence, *host_budget(case)))
    causes = list(moment.growing(case)) if case.symptom.kind == "growth" else [known] if known else []
    if case.symptom.told and case.symptom.kind == "host-told" and case.symptom.phase in ON_CARD:
        beside = (*moment.optimizer_state(case), *figures.capacity(case))[0]
        second = "the text tells of a second failure there, of the GPU's memory"
        causes.append(replace(beside, confidence=min(beside.confidence, 0.6), evidence=(second,)))
    if case.symptom.kind in OUT_OF_MEMORY - _SAYS_IT:
        causes += [_with_ghost(case, cause) for witness in _WITNESSES for cause in witness(case)]
    said = (case.symptom.quote,) if case.symptom.quote.line else ()
    causes = [replace(cause, quotes=cause.quotes or said) for cause in causes if cause.confidence >= _LEAST]
    return [_with_rule(cause) for cause in _unconfirmed(case, in_order(case, causes)[:_MOST_CAUSES])]


def _with_rule(cause: Cause) -> Cause:
    """Return the cause with the id of the rule that explains it, if there is one."""
    return replace(cause, rule=_rules_by_cause().get(cause.id)) if cause.has_rule else cause


@cache
def _rules_by_cause() -> dict[str, str]:
    return {cause: rule.id for rule in all_rules() for cause in rule.explains}


def _unconfirmed(case: Case, causes: list[Cause]) -> list[Cause]:
    """If the prediction failed with an internal error, note it in the first cause's evidence."""
    if not causes or case.ghost is None or not case.ghost.broken:
        return causes
    said = f"not confirmed by simulation: {case.ghost.missing}"
    return [replace(causes[0], evidence=(*causes[0].evidence, said)), *causes[1:]]


def _with_ghost(case: Case, cause: Cause) -> Cause:
    """Adjust a cause's confidence by what the prediction says."""
    ghost = case.ghost
    if ghost is None or ghost.prediction is None:
        return cause
    verdict, said = _word(case, cause)
    if verdict is None:
        return replace(cause, evidence=(*cause.evidence, f"in the simulation {said}")) if said else cause
    confidence = 1 - (1 - cause.confidence) * 0.5 if verdict else cause.confidence * 0.5
    if cause.id == "capacity":
        # Not fitting does not contradict a more specific cause.
        confidence = min(confidence, 0.79)
    prefix = "confirmed by simulation: " if verdict else "contradicted by simulation: "
    return replace(cause, confidence=confidence, evidence=(*cause.evidence, prefix + said))


def _word(case: Case, cause: Cause) -> tuple[bool | None, str]:
    ghost = case.ghost
    assert ghost is not None
    assert ghost.prediction is not None
    report, needs = ghost.prediction.report, ghost.prediction.needs
    failure = report.out_of_memory
    if cause.id == "logits":
        held = needs.breakdown_bytes.get("logits", 0)
        if ghost.run.kernels.loss_kernel in ("cut", "liger_fused_linear"):
            return False, f"loss kernel {ghost.run.kernels.loss_kernel} never holds the logits of a whole micro-batch"
        alike = [match for match in case.matches if match.category == "logits"]
        if alike and held:
            return True, f"{readable(held)} of logits at its peak, requests of {readable(case.requested)} among them"
        if case.matches and not in_loss(case.symptom.frames):
            return False, f"its requests of {readable(case.requested)} are for {case.matches[0].label}"
        return None, ""
    if cause.id == "optimizer-state":
        held = needs.breakdown_bytes.get("optimizer", 0)
        if held < max(case.requested, (case.capacity or 0) // 50):
            return False, f"the optimizer's state is only {readable(held)}"
        return True, f"the optimizer's state is {readable(held)}"
    if cause.id == "eval-batch":
        peak, train = ghost.peak_of("eval"), max(ghost.peak_of("forward"), ghost.peak_of("backward"))
        # The log shows that training passed and evaluation failed; a prediction does not refute that.
        if peak and train and (peak > train or not case.steps_passed):
            return peak > train, f"evaluation allocates {readable(peak)} at its peak, training {readable(train)}"
    if cause.id in ("capacity", "oversized-batch"):
        if failure is not None and cause.confidence >= 0.5:
            said = f"it runs out of memory too, in {failure.phase} at step {failure.step} ({failure.label})"
            same = case.symptom.phase in ("", "train", failure.phase) and (
                cause.id == "capacity" or abs(failure.requested_bytes - case.requested) <= case.requested // 20
            )
            return (True if same else None), said
        if ghost.prediction.memory_fits and ghost.surpassed_by(case.memory) is None:
            return False, f"it reserves {readable(report.peak_reserved_bytes)} and fits"
    if cause.id == "long-tail" and failure is not None and case.requested > case.there_bytes:
        return (
            True,
            f"batches of the full {ghost.run.shapes.sequence_len} tokens do not fit ({failure.phase}, {failure.label})",
        )
    if cause.id in ("fragmentation", "other-process", "leak") and ghost.prediction.memory_fits:
        return True, f"the config alone reserves {readable(report.peak_reserved_bytes)} and would fit"
    return None, ""


def ghost_lines(case: Case) -> tuple[str, ...]:
    """Return the prediction for this config in a few lines."""
    ghost = case.ghost
    if ghost is None:
        return ()
    if ghost.prediction is None or ghost.verdict is None:
        return (f"not simulated: {ghost.missing}",)
    needs = ghost.prediction.needs
    capacity = ghost.prediction.capacity_bytes
    fits = NAMES[ghost.verdict.memory].lower()
    lines = [
        f"predicted: {readable(needs.peak_reserved_bytes)} reserved of {readable(capacity)}: {fits}"
        if capacity
        else f"predicted: {readable(needs.peak_reserved_bytes)} reserved"
    ]
    unknown = [one.text for one in ghost.prediction.doubts if one.text]
    lines += [f"not known: {'; '.join(unknown[:3])}"] if unknown else []
    failure = ghost.prediction.report.out_of_memory
    if failure is not None:
        lines.append(
            f"predicted failure: {failure.phase}, step {failure.step}, requesting {readable(failure.requested_bytes)} "
            f"({failure.label})"
        )
    lines += [
        f"requests of {readable(case.requested)} in the prediction: {match.label} ({match.phase}, {match.times}×)"
        for match in case.matches[:3]
    ]
    return tuple(lines)


def in_order(case: Case, causes: Sequence[Cause]) -> list[Cause]:
    """Return the causes, likeliest first, with what was requested behind why it failed."""
    ranked = sorted(causes, key=lambda cause: -cause.confidence)
    saying_why = [cause for cause in ranked if _says_why(case, cause)]
    if not saying_why:
        return ranked
    # A leak fills the card in any layout: fragmentation only decides at which step.
    why = next((cause for cause in saying_why if cause.id == "leak"), saying_why[0])
    follows = {*_WHAT, "fragmentation"} if why.id == "leak" else set(_WHAT)
    what = [cause for cause in ranked if cause.id in _WHAT]
    told = replace(why, evidence=(*why.evidence, *_asked_for(case, what[:1])))
    rest = [
        replace(cause, confidence=min(cause.confidence, why.confidence * _BEHIND)) if cause.id in follows else cause
        for cause in ranked
        if cause is not why
    ]
    return sorted([told, *rest], key=lambda cause: -cause.confidence)


def _says_why(case: Case, cause: Cause) -> bool:
    if cause.confidence < _SURE:
        return False
    if cause.id == "long-tail":  # only with a config: it says that lengths vary
        return case.run is not None
    passed = case.steps_passed is None or case.steps_passed > 0 or cause.id != "eval-batch"
    return cause.id in _AT_ALL or (cause.id in _NOW and (passed or case.larger_eval_batch))


def _asked_for(case: Case, what: Sequence[Cause]) -> list[str]:
    for cause in what:
        product = next((found for found in case.factors if found.kind == _WHAT[cause.id]), None)
        if product is not None:
            return [f"what was requested: {cause.id}, {readable(case.requested)} = {product.arithmetic}"]
        if _WHAT[cause.id]:
            return [f"what was requested: {cause.id} ({', '.join(cause.evidence)})"]
    return []
