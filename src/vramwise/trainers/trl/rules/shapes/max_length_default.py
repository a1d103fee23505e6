"""max-length-default"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="max-length-default",
    severity=Severity.INFO,
    topic="shapes",
    bad="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\n",
    good="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\nmax_length: 1024\n",
    beyond_trainer="TRL cuts without a word.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`max_length` is not set, so samples are cut to 1024 tokens.

    Chats and documents are often longer, and what is cut is their end, the answer: memory looks fine, the model learns
    from stumps. Write the length that is wanted, 1024 too if it is.
    """
    if "max_length" in run.config or run.objective.generation_rows is not None or run.objective.rl == "distillation":
        return
    yield Hit(
        field="sequence_len",
        message=(
            f"max_length is not set, so it is {run.shapes.sequence_len}: longer samples lose their end without a word"
        ),
    )
