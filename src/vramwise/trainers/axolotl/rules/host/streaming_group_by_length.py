"""streaming-group-by-length"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="streaming-group-by-length",
    severity=Severity.WARNING,
    topic="host",
    bad="pretraining_dataset:\n  - path: allenai/c4\n    name: en\nmax_steps: 1000\ngroup_by_length: true\n",
    good="pretraining_dataset:\n  - path: allenai/c4\n    name: en\nmax_steps: 1000\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Grouping by length defeats streaming.

    `pretraining_dataset` streams: samples are fetched while training goes on. Sorting them into groups of equal length
    needs every length beforehand, so the whole dataset is downloaded first, which is what streaming was meant to avoid.

    Leave `group_by_length` out; concatenated pretraining rows are full anyway. The order of the samples changes.
    """
    if run.config.get("pretraining_dataset") and run.shapes.group_by_length:
        yield Hit(
            key="group_by_length",
            message="group_by_length with pretraining_dataset: the stream is downloaded whole before the first step",
            fix=unsafe("Delete group_by_length", delete_key("group_by_length")),
        )
