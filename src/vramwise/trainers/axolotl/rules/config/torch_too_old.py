"""torch-too-old"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="torch-too-old",
    severity=Severity.WARNING,
    topic="config",
    bad="base_model: meta-llama/Llama-3.2-1B\n",
    good="base_model: meta-llama/Llama-3.2-1B\n",
    options="--torch 2.5",
    good_options="--torch 2.8",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The target's torch is older than Axolotl supports.

    Axolotl warns on torch before 2.6. Its releases bind torch more tightly still (0.19 installs with 2.11 to 2.13),
    so an older torch means an older Axolotl, whose defaults may differ from what is judged here.
    """
    if run.target.torch < (2, 6):
        have = ".".join(str(part) for part in run.target.torch)
        yield Hit(message=f"torch {have} is older than 2.6, the oldest that Axolotl supports: upgrade torch")
