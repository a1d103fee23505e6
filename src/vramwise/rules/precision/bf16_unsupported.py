"""bf16-unsupported"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, as_written, rule
from vramwise.timeline import MemoryReport
from vramwise.types import GpuSpec, RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="bf16-unsupported",
    explains={"bf16-unsupported"},
    severity=Severity.WARNING,
    topic="precision",
    needs={"gpu"},
    options="--gpu t4",
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nbf16: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nbf16: auto\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """bf16 is switched on for a card that has no bf16.

    NVIDIA cards have bf16 arithmetic from compute capability 8.0 (Ampere) on. On an older card `bf16: true` is
    either refused or emulated: every matrix product converts through fp32, tensor cores stay idle and training is very
    slow. The trainer only warns.

    Write `fp16: true` with `bf16: false`, which leaves nothing to torch's own test. A trainer that chooses by the card
    takes bf16 where the card has it and fp16 elsewhere, so the same file serves both.
    """
    gpu = run.target.gpu
    if gpu is None or gpu.bf16:
        return
    # Weights alone can be bf16, too: then another key than that of the precision decided, or only the checkpoint did.
    field = next((name for name in ("precision", "weights_dtype") if run.value(name) == "bf16"), None)
    if field is None or (field == "weights_dtype" and run.origins[field].kind == "assumed"):
        return
    yield Hit(
        field=field,
        message=f"{_said(run, field)} on {_card(gpu)}, which has no bf16: it is refused, or emulated and very slow",
        change=changes.let_card_choose(run),
    )


def _said(run: RunSpec, field: str) -> str:
    """The key as it is written; where none is, bf16 is on all the same."""
    written, key = as_written(run, field), run.origins[field].key
    if written is None and key is None:
        return "bf16 is on by default" if field == "precision" else "bf16 weights"
    return written or f"bf16 in {key}"


def _card(gpu: GpuSpec) -> str:
    return (
        gpu.name if gpu.capability is None else f"{gpu.name} (sm_{gpu.capability[0]}{gpu.capability[1]}, needs sm_80)"
    )
