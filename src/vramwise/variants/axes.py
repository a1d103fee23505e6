"""The space of a search: each axis is one thing that may be chosen, in RunSpec's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vramwise.types import Change, RunSpec
from vramwise.variants import changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One thing that may be chosen. `choices`: every alternative to what the run has now, not the present one.

    `allow`: the word that opens it; "" where it keeps the training result and is open by itself.
    """

    name: str
    allow: str = ""
    choices: Callable[[RunSpec], Sequence[Change]]


def _of(*builders: changes.Builder) -> Callable[[RunSpec], Sequence[Change]]:
    return lambda run: [made for build in builders if (made := build(run)) is not None]


def _batches(run: RunSpec) -> Sequence[Change]:
    product = run.micro_batch_size * run.gradient_accumulation_steps
    sizes = [size for size in range(1, min(product, 64) + 1) if product % size == 0 and size != run.micro_batch_size]
    return [
        changes.change(
            "smaller-micro-batch",
            "same",
            f"Micro-batch {size} × accumulation {product // size}",
            "micro-batch × accumulation stays",
            micro_batch_size=size,
            gradient_accumulation_steps=product // size,
        )
        for size in sizes
    ]


def _checkpointing(run: RunSpec) -> Sequence[Change]:
    wanted = not run.gradient_checkpointing
    title = "Recompute activations" if wanted else "Keep activations"
    return [changes.change("checkpointing", "same", title, "the same activations", gradient_checkpointing=wanted)]


AXES: tuple[Axis, ...] = (
    Axis(name="batches", choices=_batches),
    Axis(name="checkpointing", choices=_checkpointing),
    Axis(name="loss", choices=_of(changes.fuse_loss)),
    Axis(name="attention", choices=_of(changes.flash_attention)),
    Axis(name="allocator", choices=_of(changes.expandable_segments)),
    Axis(name="optimizer", allow="8bit-optimizer", choices=_of(changes.eight_bit_optimizer)),
    Axis(name="method", allow="qlora", choices=_of(changes.quantize_base)),
    Axis(name="length", allow="shorter-sequences", choices=_of(changes.shorten_rows)),
)
ALLOW: Mapping[str, str] = {
    "8bit-optimizer": "optimizer states rounded to 8 bits",
    "qlora": "the base in 4 bits",
    "shorter-sequences": "shorter rows: long samples are dropped or cut",
}
