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
    """bf16 is on, but the card does not support it.

    NVIDIA cards support bf16 from compute capability 8.0 (Ampere) on. On older cards, `bf16: true` is either rejected
    or emulated: every matrix product is converted through fp32, tensor cores stay idle and training is very slow. The
    trainer only warns.

    Set `fp16: true` and `bf16: false`, which does not depend on torch's own test. A trainer that chooses by card uses
    bf16 if supported and fp16 otherwise, so the same file works on both.
    """
    gpu = run.target.gpu
    if gpu is None or gpu.bf16:
        return
    # The weights alone can be bf16, too: then another key than the precision decided, or only the checkpoint.
    field = next((name for name in ("precision", "weights_dtype") if run.value(name) == "bf16"), None)
    if field is None or (field == "weights_dtype" and run.origins[field].kind == "assumed"):
        return
    yield Hit(
        field=field,
        message=f"{_said(run, field)} on {_card(gpu)}, which has no bf16: it is rejected, or emulated and very slow",
        change=changes.let_card_choose(run),
    )


def _said(run: RunSpec, field: str) -> str:
    """Return the key as written; without a key, say that bf16 is on anyway."""
    written, key = as_written(run, field), run.origins[field].key
    if written is None and key is None:
        return "bf16 is on by default" if field == "precision" else "bf16 weights"
    return written or f"bf16 in {key}"


def _card(gpu: GpuSpec) -> str:
    return (
        gpu.name if gpu.capability is None else f"{gpu.name} (sm_{gpu.capability[0]}{gpu.capability[1]}, needs sm_80)"
    )
