"""sdpa-varlen-ignored"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, safe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_KEY = "sdpa_varlen"


@rule(
    id="sdpa-varlen-ignored",
    severity=Severity.WARNING,
    topic="attention",
    bad="attn_implementation: sdpa\nsdpa_varlen: true\nsample_packing: true\n",
    good="attn_implementation: sdpa\nsdpa_varlen: true\nsample_packing: true\n",
    options="--torch 2.9",
    good_options="--torch 2.10",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`sdpa_varlen` is on but does nothing.

    `sdpa_varlen` lets sdpa take packed rows without building a mask of sequence_len × sequence_len for each row. It
    needs packed rows, a torch that has the kernel (2.10 and newer) and the sdpa backend; otherwise it is ignored, and
    packed rows under sdpa pay for the full mask.

    Left out, it turns itself on where it works. On an older torch use flash_attention_2 for packed rows, or upgrade.
    """
    if not run.config.get(_KEY):
        return
    major, minor = run.target.torch
    reasons = (
        (not run.shapes.sample_packing, "it only affects packed rows, and sample_packing is off"),
        (run.target.torch < (2, 10), f"it needs torch 2.10, and this is torch {major}.{minor}"),
        (
            run.kernels.attn_implementation != "sdpa",
            f"it needs sdpa, and attention is {run.kernels.attn_implementation}",
        ),
    )
    why = "; ".join(reason for applies, reason in reasons if applies)
    if why:
        yield Hit(
            key=_KEY,
            message=f"{_KEY}: true has no effect: {why}",
            fix=safe(f"Delete {_KEY}", delete_key(_KEY)),
        )
