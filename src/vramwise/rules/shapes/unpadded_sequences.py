"""unpadded-sequences"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, safe
from vramwise.timeline import MemoryReport
from vramwise.types import Fix, RunSpec, Severity

_KEY = "pad_to_sequence_len"
_NEIGHBOURS = ("sequence_len", "sample_packing", "micro_batch_size")


@rule(
    id="unpadded-sequences",
    severity=Severity.WARNING,
    topic="shapes",
    bad="sequence_len: 2048\nsample_packing: false\nmicro_batch_size: 4\n",
    good="sequence_len: 2048\nsample_packing: false\npad_to_sequence_len: true\nmicro_batch_size: 4\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Batches change their shape from step to step.

    Without `pad_to_sequence_len` a batch is as wide as its longest row. Every new width asks the allocator for blocks
    of other sizes than those it has cached; it reserves new segments beside the old ones, and reserved memory grows far
    above what is ever allocated at once, until a run that was fine for hours fails.

    Measured on one H200, Llama-3.2-1B shape, LoRA, micro-batch 4, the same data: padded to the longest row 52.7 GiB
    reserved, padded to 2048 32.3 GiB, of which 29.8 GiB allocated both times. Expandable segments bring the first run
    down to 32.4 GiB.

    The price of padding: pad tokens are computed like any other. `sample_packing: true` fills the rows with further
    samples instead, which gives constant shapes with little waste, but changes what a batch holds. Padding alone
    changes no result, because pad tokens count neither in attention nor in the loss.

    Silent where shapes are constant, for RL (TRL pads by itself), for pretraining streams, and where padding has no
    say: multimodal batches and batch_flattening.
    """
    if run.constant_shapes or run.rl or _padding_has_no_say(run):
        return
    message = f"{_widths(run)}: {_cost(run)}; {_price(run)}"
    yield Hit(key=_KEY, near=_NEIGHBOURS, message=message, fix=_fix(run))


def _padding_has_no_say(run: RunSpec) -> bool:
    if run.sample_packing:
        return False
    return bool(run.config.get("processor_type") or run.config.get("batch_flattening"))


def _widths(run: RunSpec) -> str:
    if run.sample_packing:
        return (
            f"{_KEY}: false with sample_packing leaves packed rows at any length up to sequence_len {run.sequence_len}"
        )
    off = f"{_KEY} is false" if run.config.get(_KEY) is False else f"{_KEY} is not set"
    rounded = "" if run.pad_multiple == 1 else f" rounded up to {run.pad_multiple}"
    return f"{off}, so every batch is as wide as its longest row{rounded}, up to sequence_len {run.sequence_len}"


def _cost(run: RunSpec) -> str:
    if "expandable_segments:True" in run.allocator:
        return "shapes change every step and the cached blocks do not fit (expandable segments soften this here)"
    return "shapes change every step, the cached blocks do not fit and reserved memory creeps up"


def _price(run: RunSpec) -> str:
    if run.sample_packing:
        return "the price of padding is small, only the rest of a row"
    return "the price of padding: pad tokens are computed too (sample_packing wastes fewer, but changes the batch)"


def _fix(run: RunSpec) -> Fix:
    beside = next((key for key in _NEIGHBOURS if key in run.config), "base_model")
    return safe("Pad every batch to sequence_len", insert_key(_KEY, True, beside=beside))
