"""ebft-strided-too-long"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

# Axolotl's own limit for a 1B model on a card with 24 GB.
_TOKEN_SAMPLES = 20_000


@rule(
    id="ebft-strided-too-long",
    severity=Severity.WARNING,
    topic="shapes",
    bad="rl: ebft\nsequence_len: 4096\nebft:\n  mode: strided\n  n_samples_per_prompt: 4\n",
    good="rl: ebft\nsequence_len: 2048\nebft:\n  mode: strided\n  n_samples_per_prompt: 4\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Strided EBFT on long sequences needs many more tokens per step than `sequence_len`.

    Strided mode appends a generated block to the sequence at every stride and repeats the result for each sample, so a
    step has far more tokens than `sequence_len`. Axolotl warns above 20,000 token-samples, its limit for a 1B model on
    24 GB. Lower sequence_len or n_samples_per_prompt, or use a larger stride.
    """
    if run.objective.rl != "ebft" or run.config.get("ebft.mode") != "strided":
        return
    samples, generated, stride, context = (
        _whole(run, key, default)
        for key, default in (("n_samples_per_prompt", 4), ("generate_max_len", 8), ("stride", 8), ("context_length", 8))
    )
    if stride < 1:
        return
    blocks = (run.shapes.sequence_len - generated - context) // stride + 1
    tokens = run.shapes.sequence_len + blocks * generated
    if tokens * samples > _TOKEN_SAMPLES:
        yield Hit(
            key="sequence_len",
            message=(
                f"strided EBFT: (length {run.shapes.sequence_len} + {blocks} blocks × {generated}) × {samples} "
                f"samples = {tokens * samples} token-samples per step, above {_TOKEN_SAMPLES}: a 1B model needs more "
                "than 24 GB"
            ),
        )


def _whole(run: RunSpec, key: str, default: int) -> int:
    value = run.config.get(f"ebft.{key}", default)
    return value if isinstance(value, int) else default
