"""packing-multiple-streams"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="packing-multiple-streams",
    severity=Severity.ERROR,
    topic="shapes",
    bad=(
        "streaming: true\nmax_steps: 1000\nsample_packing: true\n"
        "datasets:\n  - path: one/data\n    type: alpaca\n  - path: other/data\n    type: alpaca\n"
    ),
    good=(
        "streaming: true\nmax_steps: 1000\nsample_packing: false\n"
        "datasets:\n  - path: one/data\n    type: alpaca\n  - path: other/data\n    type: alpaca\n"
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Sample packing over several streamed datasets.

    Axolotl packs a single stream; over several it stops with NotImplementedError before training. Merge the datasets
    into one, load them without `streaming`, or train unpacked (then set `pad_to_sequence_len: true` to keep shapes
    constant).
    """
    count = len(run.config.get("datasets", ()))
    if run.config.get("streaming") and run.shapes.sample_packing and count > 1:
        yield Hit(
            key="sample_packing",
            message=f"sample_packing with streaming over {count} datasets: Axolotl packs one stream only",
            fix=unsafe("Train unpacked", set_key("sample_packing", False)),
        )
