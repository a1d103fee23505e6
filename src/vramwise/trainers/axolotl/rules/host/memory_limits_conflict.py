"""memory-limits-conflict"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="memory-limits-conflict",
    severity=Severity.ERROR,
    topic="host",
    bad="base_model: meta-llama/Llama-3.2-1B\ngpu_memory_limit: 20\nmax_memory:\n  0: 20GiB\n  cpu: 64GiB\n",
    good="base_model: meta-llama/Llama-3.2-1B\ngpu_memory_limit: 20\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`max_memory` and `gpu_memory_limit` at once.

    Both say how much of the model may be placed on each GPU while it loads: `gpu_memory_limit` one figure for all of
    them (in GiB, the rest goes to host memory), `max_memory` one for each device. Axolotl refuses both together.
    Neither limits what training itself allocates.

    Keep one.
    """
    limit = run.config.get("gpu_memory_limit")
    if limit is not None and run.config.get("max_memory") is not None:
        message = (
            f"gpu_memory_limit {limit} and max_memory are both set: Axolotl takes one of them and refuses the file"
        )
        fix = unsafe("Keep gpu_memory_limit", delete_key("max_memory"))
        yield Hit(key="max_memory", near=("gpu_memory_limit",), message=message, fix=fix)
