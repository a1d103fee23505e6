"""For a run that does not fit: a change that makes it fit, and the command that shows it as a diff.

`quick_way_out` tries a few changes that save much memory, the mildest first: that finds one that fits within about a
second. `way_out` is the search of `fit` over the same axes, ended after a few simulations. If the answer is not certain
by then, only the command is given.

`fit_command` is the command line that fits a config, for messages that name it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vramwise.errors import VramwiseError
from vramwise.facts.gpus import find_gpu
from vramwise.opening.subject import Subject
from vramwise.types import Change, GpuSpec, RunSpec
from vramwise.units import size_word
from vramwise.variants.attempt import Attempt
from vramwise.variants.axes import opened
from vramwise.variants.changes import checkpoint_activations, equal_eval_batch, smaller_micro_batches
from vramwise.variants.changes.dtypes import bf16_base, bf16_weights
from vramwise.variants.changes.kernels import losses
from vramwise.variants.changes.methods import adapters, quantised_bases
from vramwise.variants.changes.weights import eight_bit_optimizers
from vramwise.variants.effort import REMEDY, SIMULATIONS_OF_A_REMEDY, OutOfEffort, is_large
from vramwise.variants.lower_bounds import weights_alone_bytes
from vramwise.variants.search.result import weighed
from vramwise.verbs.drafts import SubjectWorkshop, search_of
from vramwise.verbs.fitting.fastest import opens


def fit_command(subject: Subject, limit_bytes: int | None = None, allow: Sequence[str] = ()) -> str:
    """Return the command that finds the fastest variant that fits and shows it as a diff."""
    path = subject.document.path
    words = ["vramwise", "fit", path if path != "<text>" else "CONFIG"]
    if subject.target.gpu is not None:
        words += ["--gpu", _called(subject.target.gpu)]
    if subject.target.gpus > 1:
        words += ["--gpus", str(subject.target.gpus)]
    if subject.data.named is not None:
        words += ["--data", subject.data.named]
    if limit_bytes is not None:
        words += ["--memory-limit", size_word(limit_bytes)]
    for package, release in subject.target.stack.releases.items():
        if release.origin.kind == "option":
            words += ["--with", f"{package}=={release.meant}"]
    for word in allow:
        words += ["--allow", word]
    return shlex.join(words)


def _called(gpu: GpuSpec) -> str:
    """Return a name for the card that --gpu accepts: its own name, else its size."""
    name = gpu.name.lower().replace(" ", "-")
    try:
        if find_gpu(name).memory_bytes == gpu.memory_bytes:
            return name
    except VramwiseError:
        pass
    return size_word(gpu.memory_bytes)


# A run that needs this many cards' memory is a typing error, and a search would not help.
_FAR_OFF = 1000
# Words of --allow to try if nothing fits that keeps the training result: the most common ones, the mildest first.
_WORDS = {
    "8bit-optimizer": eight_bit_optimizers,
    "bf16-weights": bf16_weights,
    "lora": adapters,
    "qlora": quantised_bases,
}
# Losses that never hold the logits of all tokens at once.
_LEAN = ("liger_fused_linear", "chunked")


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """A variant that fits, or None if a few simulations did not find one.

    `allow`: the words that permit it. `command`: shows it as a diff, or searches further.
    """

    attempt: Attempt | None
    allow: tuple[str, ...] = ()
    command: str = ""


def way_out(subject: Subject, *, limit_bytes: int | None = None, most: int = REMEDY) -> WayOut | None:
    """Find changes that make a run fit; None if nothing that was tried does. `most`: the effort to spend."""
    if not is_worth_trying(subject, limit_bytes):
        return None
    workshop = SubjectWorkshop(subject=subject, limit_bytes=limit_bytes, until=subject.effort.run + most)
    for allow in ((), *((word,) for word in _WORDS if opens(subject.run, word))):
        if weights_alone_bytes(subject.run, subject.model, allow) > workshop.room_bytes(subject.run):
            continue
        search = search_of(workshop, opened(allow))
        search.most = SIMULATIONS_OF_A_REMEDY
        best = search.best()
        if best is not None or search.ended_early:
            certain = None if best is None or search.ended_early else search.book.judged(best)
            return WayOut(attempt=certain, allow=allow, command=fit_command(subject, limit_bytes, allow))
    return None


def is_worth_trying(subject: Subject, limit_bytes: int | None) -> bool:
    """Return whether a run does not fit and its variants can be simulated quickly."""
    prediction = subject.prediction(limit_bytes=limit_bytes)
    if prediction.memory_fits is not False or is_large(prediction.short_timeline):
        return False
    return prediction.needs.highest_reserved_bytes <= _FAR_OFF * (prediction.capacity_bytes or 0)


def quick_way_out(subject: Subject, *, limit_bytes: int | None = None) -> WayOut | None:
    """Find changes that make a run fit within about a second; None if no attempt fits."""
    if not is_worth_trying(subject, limit_bytes):
        return None
    workshop = SubjectWorkshop(subject=subject, limit_bytes=limit_bytes, until=subject.effort.spent + REMEDY)
    try:
        for allow, changes in _tries(subject.run):
            if weights_alone_bytes(subject.run, subject.model, allow) > workshop.room_bytes(subject.run):
                continue
            found = _tried(workshop, changes)
            if found is not None and found.fits:
                return WayOut(attempt=found, allow=allow, command=fit_command(subject, limit_bytes, allow))
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


def _tried(workshop: SubjectWorkshop, changes: list[Change]) -> Attempt | None:
    """Return the variant with its prediction; None if it cannot be written, is refused, or is certainly too large."""
    attempt = workshop.made(changes)
    if attempt.run is None or workshop.refusal(attempt):
        return None
    if workshop.least_bytes(attempt.run) > workshop.room_bytes(attempt.run):
        return None
    return weighed(workshop.predicted(attempt, on_card=True), None, None)
