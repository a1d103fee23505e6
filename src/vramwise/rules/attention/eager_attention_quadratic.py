"""eager-attention-quadratic"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.units import mib
from vramwise.variants import changes

_LONG = 2048
# Models with soft-capped scores (Gemma 2) and those without an sdpa path in transformers 5.
_NEEDS_EAGER = re.compile(r"gemma[-_]?2(?![b\d])|gpt[-_]?oss|deepseek[-_]?v4", re.IGNORECASE)


@rule(
    id="eager-attention-quadratic",
    explains={"eager-attention"},
    severity=Severity.WARNING,
    costs_memory=True,
    topic="attention",
    bad="base_model: meta-llama/Llama-3.2-1B\nsequence_len: 4096\nmicro_batch_size: 2\nattn_implementation: eager\n",
    good="base_model: meta-llama/Llama-3.2-1B\nsequence_len: 4096\nmicro_batch_size: 2\nattn_implementation: sdpa\n",
    beyond_trainer="The trainer accepts eager attention at any length.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Eager attention stores all scores, which grow with the square of the length.

    `eager` computes the scores of every query with every key as a tensor of batch × heads × length × length, and its
    softmax runs in fp32: 4 bytes a score, plus the copy in the compute dtype that is kept for backward. `sdpa` and
    FlashAttention never hold them. Not reported below a length of 2048, or for models that need eager: Gemma 2 caps its
    scores, gpt-oss and DeepSeek V4 have no sdpa path.
    """
    length, micro = run.shapes.sequence_len, run.batch.micro_batch_size
    if run.kernels.attn_implementation != "eager" or length < _LONG or _NEEDS_EAGER.search(run.base_model or ""):
        return
    size = micro * length * length * 4
    yield Hit(
        field="attn_implementation",
        message=(
            f"eager attention holds {micro} × {length}² × 4 bytes = {mib(size)} of fp32 scores for every head of a "
            "layer; sdpa holds none"
        ),
        change=changes.fused_attention(run),
    )
