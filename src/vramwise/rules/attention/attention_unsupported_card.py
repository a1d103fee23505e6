"""attention-unsupported-card"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.facts.attention import base_name
from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

_SAGE = ((8, 0), (8, 6), (8, 9), (9, 0), (12, 0))
# Lowest compute capability by backend, as in transformers 5 (modeling_flash_attention_utils.py).
_OLDEST = {
    "flash_attention_2": (8, 0),
    "kernels-community/flash-attn2": (8, 0),
    "flash_attention_3": (8, 0),
    "kernels-community/flash-attn3": (8, 0),
    "kernels-community/vllm-flash-attn3": (8, 0),
    "flash_attention_4": (9, 0),
}


@rule(
    id="attention-unsupported-card",
    explains={"flash-card"},
    severity=Severity.ERROR,
    topic="attention",
    needs={"gpu"},
    bad="base_model: meta-llama/Llama-3.2-1B\nattn_implementation: flash_attention_2\n",
    good="base_model: meta-llama/Llama-3.2-1B\nattn_implementation: sdpa\n",
    options="--gpu t4",
    beyond_trainer=(
        "The trainer checks the card only for sage and fp8; FlashAttention fails on older cards at run time."
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The attention backend does not run on this card.

    SageAttention runs on sm_80, 86, 89, 90 and 120, fp8 attention on sm_90 and newer; the trainer stops on other
    cards. FlashAttention 2 and 3 need Ampere (sm_80), FlashAttention 4 needs Hopper (sm_90). The trainer does not
    check this, and the stock builds fail on a T4 or V100 with "FlashAttention only supports Ampere GPUs or newer".
    `sdpa` runs on every card, without holding the scores where a memory-efficient kernel applies.
    """
    gpu, name = run.target.gpu, base_name(run.kernels.attn_implementation)
    if gpu is None or gpu.capability is None:
        return
    card = f"{gpu.name} is sm_{gpu.capability[0]}{gpu.capability[1]}"
    if name == "sage" and gpu.capability not in _SAGE:
        message = f"attention sage runs only on sm_80, 86, 89, 90 and 120, {card}: {run.trainer_title} stops"
        yield _hit(run, message)
    if name == "fp8" and gpu.capability < (9, 0):
        yield _hit(run, f"attention fp8 needs sm_90 or newer, {card}: {run.trainer_title} stops")
    oldest = _OLDEST.get(name)
    if oldest is not None and gpu.capability < oldest:
        message = (
            f"{name} needs sm_{oldest[0]}{oldest[1]} or newer, {card}: stock builds fail in the first forward pass"
        )
        yield _hit(run, message)


def _hit(run: RunSpec, message: str) -> Hit:
    return Hit(field="attn_implementation", message=message, change=changes.plain_attention(run))
