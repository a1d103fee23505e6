"""attention-torch-too-old"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

_OLDEST = {"flex_attention": (2, 6), "fp8": (2, 11)}


@rule(
    id="attention-torch-too-old",
    severity=Severity.ERROR,
    topic="attention",
    bad="base_model: meta-llama/Llama-3.2-1B\nattn_implementation: fp8\n",
    good="base_model: meta-llama/Llama-3.2-1B\nattn_implementation: fp8\n",
    options="--torch 2.9",
    good_options="--torch 2.11",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The attention backend needs a newer torch than the target has.

    Flex attention needs torch 2.6, fp8 attention torch 2.11. On anything older, the trainer rejects the file or, in
    versions without the check, the run fails where attention is first computed. Upgrade torch, or use a backend that
    this torch supports.
    """
    name = run.kernels.attn_implementation
    oldest = _OLDEST.get(name)
    if oldest is None or run.target.torch >= oldest:
        return
    need, have = (".".join(map(str, version)) for version in (oldest, run.target.torch))
    yield Hit(
        field="attn_implementation",
        message=(
            f"attention {name} needs torch {need}, but the target has {have}: the run stops when attention is first "
            "computed, if not earlier"
        ),
        change=changes.plain_attention(run),
    )
