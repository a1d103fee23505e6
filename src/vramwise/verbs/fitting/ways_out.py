"""A run that does not fit: the change that makes it fit, in a word, and the command that shows it as a diff.

The answer is `fit`'s own: the same search over the same axes, ended after a few simulations. Where it is not certain by
then, none is named, only the command that looks further.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vramwise.facts.parameters import parameter_count
from vramwise.subject import Subject
from vramwise.variants.attempt import Attempt
from vramwise.variants.axes import opened
from vramwise.variants.effort import MOST_EVENTS, REMEDY, SIMULATIONS_OF_A_REMEDY
from vramwise.variants.search.result import Candidate
from vramwise.verbs.fitting.commands import fit_command
from vramwise.verbs.fitting.fastest import opens
from vramwise.verbs.fitting.workshop import SubjectWorkshop, search_of

# A run that needs so many cards' memory at once is a slip of the pen: what a search would find is not what is meant.
_FAR_OFF = 1000
# What is opened where nothing fits that keeps the training result: what most people would turn to, the mildest first.
_WORDS = ("8bit-optimizer", "lora", "qlora")


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """The variant that fits, None where a few simulations did not find it; `allow`: the words that open it.

    `command`: the line that shows it as a diff, or looks further.
    """

    candidate: Candidate | None
    allow: tuple[str, ...] = ()
    command: str = ""

    @property
    def attempt(self) -> Attempt | None:
        """Its changes and its prediction."""
        return None if self.candidate is None else self.candidate.attempt


def way_out(subject: Subject, *, limit_bytes: int | None = None, most: int = REMEDY) -> WayOut | None:
    """What makes a run fit that does not; None where nothing does that was tried. `most`: what may be spent on it."""
    prediction = subject.prediction(limit_bytes=limit_bytes)
    if prediction.memory_fits is not False or len(prediction.short_timeline.events) > MOST_EVENTS:
        return None
    if prediction.needs.highest_reserved_bytes > _FAR_OFF * (prediction.capacity_bytes or 0):
        return None
    workshop = SubjectWorkshop(subject=subject, limit_bytes=limit_bytes, until=subject.effort.run + most)
    for allow in ((), *((word,) for word in _WORDS if opens(subject.run, word))):
        if weights_alone_bytes(subject, allow) > workshop.room_bytes(subject.run):
            continue
        search = search_of(workshop, opened(allow))
        search.most = SIMULATIONS_OF_A_REMEDY
        best = search.best()
        if best is not None or search.ended_early:
            certain = None if best is None or search.ended_early else search.book.candidate(best)
            return WayOut(candidate=certain, allow=allow, command=fit_command(subject, limit_bytes, allow))
    return None


def weights_alone_bytes(subject: Subject, allow: Sequence[str]) -> int:
    """What the weights take at least, and where all are trained their gradients, whatever else a search with these
    words changes; 0 where parts are elsewhere."""
    run, model = subject.run, subject.model
    whole = run.sharding.kind == "ddp" or run.batch.gpus == 1  # a lone card holds every shard
    if model is None or run.savings.layer_offloading or run.sharding.offload_params or not whole:
        return 0
    quantised = run.loading.quantization is not None or "qlora" in allow or model.num_experts
    adapted = run.adapter.kind is not None or "lora" in allow
    # some are frozen, shards' gradients may be elsewhere, or the optimizer lets one go before the next is there
    partly = (
        run.adapter.unfrozen
        or run.adapter.trained_blocks is not None
        or run.unfollowed
        or re.search("layer|lomo", run.optimizer.name)
    )
    whole_gradients = not partly and run.sharding.kind in ("none", "ddp")
    each = 0.5 if quantised else 2 if adapted or not whole_gradients else 4
    return int(each * parameter_count(model))
