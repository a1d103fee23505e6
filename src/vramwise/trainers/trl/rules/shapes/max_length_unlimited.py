"""max-length-unlimited"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="max-length-unlimited",
    severity=Severity.WARNING,
    topic="shapes",
    bad="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\nmax_length: null\n",
    good="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\nmax_length: 4096\n",
    beyond_trainer="TRL takes rows as they come; one long sample decides whether the run survives.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`max_length: null` cuts nothing: the longest sample of the data decides the memory.

    A run fails at the step that meets it, hours in as likely as not, because rows are drawn at random. Give a length
    that covers nearly all samples; with data on this machine `vramwise predict` shows what its lengths need, and
    without it counts with 32,768 tokens.
    """
    if (
        "max_length" not in run.config
        or run.config.get("max_length") is not None
        or run.objective.generation_rows is not None
    ):
        return
    yield Hit(
        field="sequence_len",
        message=(
            "max_length is null: no sample is cut, so the longest one decides whether the run fits "
            f"(counted with {run.shapes.sequence_len:,} tokens where the data is not known)"
        ),
    )
