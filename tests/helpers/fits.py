"""A fit made by hand: real attempts at a few changes, without the search, for the tests of what is shown of it."""

from dataclasses import replace
from functools import cache

from vramwise.facts.gpus import find_gpu
from vramwise.opening.options import Options, Text
from vramwise.opening.subject import Subject, open_subject
from vramwise.types import Change
from vramwise.variants import changes
from vramwise.variants.attempt import Attempt
from vramwise.variants.search.result import Fit
from vramwise.variants.speed import Speed
from vramwise.verbs.drafts import attempt

CONFIG = """\
base_model: Qwen/Qwen2.5-0.5B   # small
sequence_len: 2048
sample_packing: true
micro_batch_size: 4
gradient_accumulation_steps: 4
bf16: true
optimizer: adamw_torch_fused
gradient_checkpointing: true   # saves memory
attn_implementation: flash_attention_2
"""


def subject_on(card: str, config: str = CONFIG) -> Subject:
    return open_subject(Text(config), Options(gpu=card, versions=("axolotl==0.21.0",), torch="2.11"))


def candidate(subject: Subject, *wanted: Change, fell: str = "", factor: float = 1.0) -> Attempt:
    """One variant; a step of the file takes a second, and of a variant so many times as long."""
    tried = attempt(subject, *wanted) if wanted else _as_it_is(subject)
    assert tried.prediction is not None, tried.refused
    tokens = tried.run.shapes.sequence_len * tried.run.batch.effective_batch_size
    speed = Speed(step_seconds=factor, tokens_per_second=tokens / factor)
    spare = (tried.prediction.capacity_bytes or 0) - tried.prediction.needs.highest_reserved_bytes
    return replace(tried, speed=speed, spare_bytes=spare, fell=fell)


def _as_it_is(subject: Subject) -> Attempt:
    return Attempt(changes=(), document=subject.document, run=subject.run, prediction=subject.prediction())


def batches(subject: Subject, micro: int) -> Change:
    product = subject.run.batch.micro_batch_size * subject.run.batch.gradient_accumulation_steps
    return changes.change(
        "micro-batch",
        "same",
        f"Micro-batch {micro}",
        "micro-batch × accumulation stays, so each optimizer step sees the same samples",
        micro_batch_size=micro,
        gradient_accumulation_steps=product // micro,
    )


@cache
def a_fit(card: str = "rtx-4090") -> tuple[Subject, Fit]:
    """Something fits, and is faster than the file."""
    subject = subject_on(card)
    best = candidate(subject, batches(subject, 2), changes.fuse_loss(subject.run), factor=0.7)
    smaller = candidate(subject, batches(subject, 1), factor=0.9)
    return subject, Fit(
        original=candidate(subject),
        best=best,
        alternatives=(best, smaller),
        fallen={"slower": 214, "out of memory": 31},
        smallest_card=find_gpu("rtx-4090"),
        considered=312,
        simulated=9,
    )


@cache
def nothing_fits(card: str = "8GB") -> tuple[Subject, Fit]:
    """Nothing fits, but a word would open something."""
    subject = subject_on(card)
    opened = candidate(subject, changes.eight_bit_optimizer(subject.run), batches(subject, 1))
    return subject, Fit(
        original=candidate(subject, fell="out of memory"),
        best=None,
        closest=candidate(subject, batches(subject, 1), fell="out of memory"),
        opened=(("8bit-optimizer", opened),),
        fallen={"out of memory": 40},
        smallest_card=find_gpu("rtx-4090"),
        considered=40,
        simulated=3,
    )


@cache
def already_best(card: str = "rtx-4090") -> tuple[Subject, Fit]:
    """The file itself is the answer."""
    subject = subject_on(card)
    original = candidate(subject)
    return subject, Fit(original=original, best=original, alternatives=(original,), considered=10, simulated=2)
