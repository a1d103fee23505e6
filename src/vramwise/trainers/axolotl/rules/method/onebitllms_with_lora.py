"""onebitllms-with-lora"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import Edit, RunSpec, Severity


@rule(
    id="onebitllms-with-lora",
    severity=Severity.ERROR,
    topic="method",
    bad="adapter: lora\nuse_onebitllms: true\n",
    good="use_onebitllms: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """1-bit training with a LoRA adapter.

    `use_onebitllms` replaces every linear by one that rounds its own weight to ternary values as it trains. An adapter
    would freeze exactly those weights, so Axolotl refuses `lora` and `qlora` with it.

    Fine-tune all weights, or train an adapter on a plain checkpoint.
    """
    if run.config.get("use_onebitllms") and run.adapter.kind in ("lora", "qlora"):
        message = (
            f"use_onebitllms with adapter: {run.adapter.kind}: 1-bit linears train their own weights, Axolotl refuses "
            "the "
            "file"
        )
        yield Hit(key="use_onebitllms", message=message, fix=unsafe("Fine-tune all weights", *_full(run)))


def _full(run: RunSpec) -> Iterator[Edit]:
    """Weights that bitsandbytes holds cannot be trained without an adapter: that goes with it."""
    yield delete_key("adapter")
    yield from (set_key(key, False) for key in ("load_in_4bit", "load_in_8bit") if run.config.get(key))
