"""Quick attempts for a run that does not fit: a few changes that save much memory, the mildest first.

`fit` finds the fastest variant, which takes seconds. This finds one that fits within about a second.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.opening.subject import Subject
from vramwise.types import Change, RunSpec
from vramwise.variants.changes import checkpoint_activations, equal_eval_batch, smaller_micro_batches
from vramwise.variants.changes.dtypes import bf16_base, bf16_weights
from vramwise.variants.changes.kernels import losses
from vramwise.variants.changes.methods import adapters, quantised_bases
from vramwise.variants.changes.weights import eight_bit_optimizers
from vramwise.variants.effort import REMEDY, OutOfEffort
from vramwise.variants.search.result import Candidate, weighed
from vramwise.verbs.fitting.commands import fit_command
from vramwise.verbs.fitting.proof import weights_alone_bytes
from vramwise.verbs.fitting.ways_out import WayOut, is_worth_trying, way_out
from vramwise.verbs.fitting.workshop import SubjectWorkshop

# Losses that never hold the logits of all tokens at once.
_LEAN = ("liger_fused_linear", "chunked")
_WORDS = {
    "8bit-optimizer": eight_bit_optimizers,
    "bf16-weights": bf16_weights,
    "lora": adapters,
    "qlora": quantised_bases,
}


def quick_way_out(subject: Subject, *, limit_bytes: int | None = None) -> WayOut | None:
    """Find changes that make a run fit within about a second; None if no attempt fits."""
    if not is_worth_trying(subject, limit_bytes):
        return None
    workshop = SubjectWorkshop(subject=subject, limit_bytes=limit_bytes, until=subject.effort.spent + REMEDY)
    try:
        for allow, changes in _tries(subject.run):
            if weights_alone_bytes(subject, allow) > workshop.room_bytes(subject.run):
                continue
            found = _tried(workshop, changes)
            if found is not None and found.fits:
                return WayOut(candidate=found, allow=allow, command=fit_command(subject, limit_bytes, allow))
    except OutOfEffort:
        pass
    return way_out(subject, limit_bytes=limit_bytes)


def _tries(run: RunSpec) -> Iterator[tuple[tuple[str, ...], list[Change]]]:
    """Yield changes to try together, with the words of --allow that permit them."""
    loss = next((one for one in losses(run) if one.fields["loss_kernel"] in _LEAN), None)
    lean = loss if run.kernels.loss_kernel not in _LEAN else None
    kernels = [one for one in (bf16_base(run), lean) if one is not None]
    evaluation, recompute = equal_eval_batch(run), checkpoint_activations(run)
    at_training_size = [*kernels, *([evaluation] if evaluation else [])]
    if at_training_size:
        yield (), at_training_size
    if recompute:
        yield (), [*at_training_size, recompute]
        kernels.append(recompute)
    smallest = list(smaller_micro_batches(run))[-1:]
    if smallest:
        yield (), [*smallest, *kernels]
    for word, choices in _WORDS.items():
        for choice in list(choices(run))[:1]:
            yield (word,), [choice, *(smallest or at_training_size), *(kernels if smallest else ())]


def _tried(workshop: SubjectWorkshop, changes: list[Change]) -> Candidate | None:
    """Return the variant with its prediction; None if it cannot be written, is refused, or is certainly too large."""
    attempt = workshop.made(changes)
    if attempt.run is None or workshop.refusal(attempt):
        return None
    if workshop.least_bytes(attempt.run) > workshop.room_bytes(attempt.run):
        return None
    return weighed(workshop.predicted(attempt, on_card=True), None, None)
