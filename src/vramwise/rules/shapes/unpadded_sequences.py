"""unpadded-sequences"""

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
    topic="shapes",
    bad="sequence_len: 2048\nsample_packing: false\nmicro_batch_size: 4\n",
    good="sequence_len: 2048\nsample_packing: false\npad_to_sequence_len: true\nmicro_batch_size: 4\n",
    options="--launcher module",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Batches change their shape from step to step.

    Without padding to one length a batch is as wide as its longest row. Every new width asks the allocator for blocks
    of other sizes than those it has cached; it reserves new segments beside the old ones, and reserved memory grows far
    above what is ever allocated at once, until a run that was fine for hours fails.

    Measured on one H200, Llama-3.2-1B shape, LoRA, micro-batch 4, the same data: padded to the longest row 52.7 GiB
    reserved, padded to 2048 32.3 GiB, of which 29.8 GiB allocated both times. Expandable segments bring the first run
    down to 32.4 GiB: where they are on, padding is worth nothing, and the rule speaks only with `--pedantic`.

    With a card named, the run is predicted with widths that vary and with constant ones. The difference is the cost
    here; where the card has a tenth to spare all the same, the finding only informs.

    The price of padding: pad tokens are computed like any other. Packing fills the rows with further samples instead,
    which gives constant shapes with little waste, but changes what a batch holds. Padding alone
    changes no result, because pad tokens count neither in attention nor in the loss.

    Silent where shapes are constant, for RL (TRL pads by itself), for pretraining streams, and where padding has no
    effect: multimodal batches and flattened ones.
    """
    change = changes.pad_rows(run)
    if change is None:
        return
    if EXPANDABLE in run.allocator.settings:
        message = f"{_widths(run)}: expandable segments take the changing shapes, padding would save nothing"
        yield Hit(field=_FIELD, message=message, severity=Severity.INFO, pedantic=True)
        return
    cost = "shapes change every step, the cached blocks do not fit and reserved memory creeps up"
    yield Hit(field=_FIELD, message=f"{_widths(run)}: {cost}; {_price(run)}", change=change)


def _widths(run: RunSpec) -> str:
    key, packing = run.keys[_FIELD], run.keys["sample_packing"]
    longest = f"{run.keys['sequence_len']} {run.shapes.sequence_len}"
    if run.shapes.sample_packing:
        return f"{key}: false with {packing} leaves packed rows at any length up to {longest}"
    off = f"{key} is false" if run.origins[_FIELD].kind == "file" else f"{key} is not set"
    rounded = "" if run.shapes.pad_multiple == 1 else f" rounded up to {run.shapes.pad_multiple}"
    return f"{off}, so every batch is as wide as its longest row{rounded}, up to {longest}"


def _price(run: RunSpec) -> str:
    if run.shapes.sample_packing:
        return "the price of padding is small, only the rest of a row"
    packing = run.keys["sample_packing"]
    return f"the price of padding: pad tokens are computed too ({packing} wastes fewer, but changes the batch)"
