"""packing-leaks-across-samples"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.attention import isolates_packed_samples
from vramwise.trainers.axolotl.remedies import choose_attention
from vramwise.types import Fix, RunSpec, Severity

_AMPERE = (8, 0)


@rule(
    id="packing-leaks-across-samples",
    severity=Severity.WARNING,
    topic="attention",
    bad="sequence_len: 4096\nsample_packing: true\n",
    good="sequence_len: 4096\nsample_packing: true\nattn_implementation: flash_attention_2\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Packed samples attend to each other.

    Packing puts several samples into one row. A backend that knows where samples begin (flash_attention_2 and 3, flex,
    xformers, sage) keeps them apart, and so do `sdpa` and `eager` when they are named: Axolotl then drops the attention
    mask and the boundaries come from the position ids. With no `attn_implementation` written the model still runs under
    sdpa, but Axolotl keeps the plain mask: every sample sees the ones before it in its row.

    Nothing fails, the loss just learns from strangers' context. Name a backend; this changes what is trained.
    """
    if not run.sample_packing:
        return
    unset = run.origins["attn_implementation"].kind == "default"
    if not unset and isolates_packed_samples(run.attn_implementation):
        return
    backend = "no attn_implementation" if unset else f"attn_implementation {run.attn_implementation}"
    yield Hit(
        key="attn_implementation",
        near=("sample_packing",),
        message=f"sample_packing with {backend} does not keep samples apart: each attends to those before it",
        fix=_fix(run, unset),
    )


def _fix(run: RunSpec, unset: bool) -> Fix:
    gpu = run.target.gpu
    old_card = gpu is not None and gpu.capability is not None and gpu.capability < _AMPERE
    name = "sdpa" if old_card else "flash_attention_2"
    title = f"Attend with {name}"
    if unset:
        return unsafe(title, insert_key("attn_implementation", name, beside="sample_packing"))
    return unsafe(title, *choose_attention(run, name))
