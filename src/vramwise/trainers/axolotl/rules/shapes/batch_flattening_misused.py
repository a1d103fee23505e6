"""batch-flattening-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.facts.attention import supports_packing
from vramwise.rules.base import Hit, rule, safe, set_key
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_KEY = "batch_flattening"


@rule(
    id="batch-flattening-misused",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="shapes",
    bad="batch_flattening: true\nattn_implementation: sdpa\nmicro_batch_size: 4\n",
    good="batch_flattening: true\nattn_implementation: flash_attention_2\nmicro_batch_size: 4\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Batch flattening where it cannot work or has nothing to do.

    `batch_flattening: true` joins the rows of a micro-batch into one without padding. That needs a backend that knows
    where samples begin (flash attention, flex, xformers, sage), and rows that are not packed already: Axolotl refuses
    the rest. With `micro_batch_size: 1` there is nothing to join. With Liger's GRPO loss only the scoring pass is
    flattened.

    `batch_flattening: auto` turns itself on only where it works, and computes the same loss.
    """
    flattening = run.config.get(_KEY)
    if flattening is True:
        yield from _explicit(run)
    if flattening and run.config.get("trl.use_liger_loss"):
        message = f"{_KEY} with trl.use_liger_loss: only the scoring pass is flattened, the training pass stays padded"
        yield Hit(key=_KEY, message=message, severity=Severity.WARNING)


def _explicit(run: RunSpec) -> Iterator[Hit]:
    attention = run.kernels.attn_implementation
    cases = (
        (
            not supports_packing(attention),
            Severity.ERROR,
            f"{_KEY}: true under {attention} attention is refused: the backend cannot tell joined rows apart",
        ),
        (
            run.shapes.sample_packing,
            Severity.ERROR,
            f"{_KEY}: true with sample_packing: true is refused: packed rows are joined already",
        ),
        (
            run.batch.micro_batch_size == 1,
            Severity.WARNING,
            f"{_KEY}: true with micro_batch_size 1 has no effect: there is one row, nothing to join",
        ),
    )
    for applies, severity, message in cases:
        if applies:
            fix = safe("Let Axolotl decide: batch_flattening auto", set_key(_KEY, "auto"))
            yield Hit(key=_KEY, message=message, severity=severity, fix=fix)
