"""flash-attention-broken"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.facts.attention import flash_stops, uses_flash_library
from vramwise.rules.base import Hit, as_written, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

_BASE = "base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nattn_implementation: "


@rule(
    id="flash-attention-broken",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="attention",
    bad=f"{_BASE}flash_attention_2\n",
    good=f"{_BASE}sdpa\n",
    options="--with transformers==5.6.0",
    beyond_trainer="The trainer passes the name on, and transformers stops in the first layer.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Flash attention stops in this release of transformers.

    transformers 5.6.0 casts the attention sinks of a model without checking whether it has any. With any flash
    attention, every model without sinks (all but gpt-oss) stops in its first layer with `'NoneType' object has no
    attribute 'to'`. Seen in eight runs on a card. LLaMA-Factory 0.9.5 allows no newer release, so it is what a fresh
    installation gets.

    Use sdpa, which needs no more memory where rows are not padded, or another release of transformers. If the version
    is only assumed, the finding is a warning; set it with `--with transformers==…` or `--stack FILE`.
    """
    if not flash_stops(run) or not uses_flash_library(run.kernels.attn_implementation):
        return
    version = run.origins["flash_needs_sinks"]
    severity = Severity.WARNING if version.kind == "assumed" else None
    backend = as_written(run, "attn_implementation") or run.kernels.attn_implementation
    message = f"{backend} under {version.why} stops in the first layer: 'NoneType' object has no attribute 'to'"
    yield Hit(field="attn_implementation", message=message, change=changes.plain_attention(run), severity=severity)
