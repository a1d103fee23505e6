"""Rules for every trainer about the shapes of its batches."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.allocator.variables import EXPANDABLE
from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

_FIELD = "pad_to_sequence_len"


@rule(
    id="unpadded-sequences",
    explains={"long-tail"},
    severity=Severity.WARNING,
    costs_memory=True,
    figured="fixed segments",
    without_gain="lighter",
    bad="sequence_len: 2048\nsample_packing: false\nmicro_batch_size: 4\n",
    good="sequence_len: 2048\nsample_packing: false\npad_to_sequence_len: true\nmicro_batch_size: 4\n",
    options="--launcher module",
)
def unpadded_sequences(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Batches change shape from step to step.

    Without padding to a fixed length, a batch is as wide as its longest row. Every new width needs blocks of other
    sizes than the cached ones. The allocator reserves more segments, and reserved memory grows far above what is ever
    allocated at once, until a run that worked for hours fails.

    Measured on one H200, Llama-3.2-1B shape, LoRA, micro-batch 4, the same data: padded to the longest row 52.7 GiB
    reserved, padded to 2048 32.3 GiB, of which 29.8 GiB allocated both times. Expandable segments bring the first run
    down to 32.4 GiB: if they are on, padding has no benefit, and the rule reports only with `--pedantic`.

    With a card, the run is predicted with varying and with constant widths. The difference is the cost. If a tenth of
    the card is free anyway, the finding is only a note. Without a prediction, or if full rows do not fit,
    padding is not a safe fix: full rows may need more memory than your data's rows.

    Padding has a cost: pad tokens are computed like any other. Packing fills the rows with more samples instead, which
    gives constant shapes with little waste, but changes the contents of a batch. Padding alone changes no result,
    because pad tokens affect neither attention nor the loss.

    Not reported if shapes are constant, for RL (TRL pads on its own), for pretraining streams, and for batches where
    padding has no effect: multimodal and flattened ones.
    """
    change = changes.pad_rows(run)
    if change is None:
        return
    if EXPANDABLE in run.allocator.settings:
        message = f"{_widths(run)}: expandable segments handle the changing shapes, so padding would save nothing"
        yield Hit(field=_FIELD, message=message, severity=Severity.INFO, pedantic=True)
        return
    cost = "shapes change every step, cached blocks do not fit and reserved memory creeps up"
    message = f"{_widths(run)}: {cost}; {_price(run)}"
    # Full rows take more memory than short ones: they may not fit, or nobody knows.
    risky = memory is None or memory.out_of_memory is not None
    yield Hit(field=_FIELD, message=message, change=change, by_request=risky and not run.shapes.sample_packing)


def _widths(run: RunSpec) -> str:
    key, packing = run.keys[_FIELD], run.keys["sample_packing"]
    longest = f"{run.keys['sequence_len']} {run.shapes.sequence_len}"
    if run.shapes.sample_packing:
        return f"{key}: false with {packing} leaves packed rows with any length up to {longest}"
    off = f"{key} is false" if run.origins[_FIELD].kind == "file" else f"{key} is not set"
    rounded = "" if run.shapes.pad_multiple == 1 else f" rounded up to {run.shapes.pad_multiple}"
    return f"{off}, so every batch is as wide as its longest row{rounded}, up to {longest}"


def _price(run: RunSpec) -> str:
    if run.shapes.sample_packing:
        return "padding costs little, only the rest of a row"
    packing = run.keys["sample_packing"]
    return f"padding has a cost: pad tokens are computed too ({packing} wastes fewer, but changes the batch)"
