"""fp8-unsupported-card"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import GpuSpec, RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="fp8-unsupported-card",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="precision",
    needs={"gpu"},
    options="--gpu rtx-4090",
    bad="base_model: meta-llama/Llama-3.2-1B\nfp8: true\ntorch_compile: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfp8: true\ntorch_compile: true\n",
    good_options="--gpu h100",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """fp8 training on a card that the trainer does not accept for fp8.

    fp8 is accepted from compute capability 9.0 (Hopper) on; the trainer stops on anything older. Ada cards (RTX
    40, L4, L40S; 8.9) have fp8 units but are rejected too; Ampere and older have none.

    Train in bf16 on this card, without fp8.
    """
    gpu = run.target.gpu
    if run.precision.compute != "fp8" or gpu is None:
        return
    change = changes.train_in_bf16(run) or changes.let_card_choose(run)
    asked = gpu.vendor != "amd" and run.precision.refuses_fp8_below is not None
    if not asked and not gpu.fp8:
        message = (
            f"{_said(run)} on {gpu.name}, which has no fp8: {run.trainer_title} accepts it, and the first fp8 matrix "
            "product fails"
        )
        yield Hit(field="precision", message=message, change=change, severity=Severity.WARNING)
    elif asked and gpu.capability is not None and gpu.capability < (run.precision.refuses_fp8_below or (0, 0)):
        yield Hit(field="precision", message=_refused(run, gpu, gpu.capability), change=change)


def _said(run: RunSpec) -> str:
    """Return fp8 as the file requests it: by a key of that name, or by a launcher's setting."""
    return "fp8: true" if run.keys["precision"] == "fp8" else "fp8"


def _refused(run: RunSpec, gpu: GpuSpec, capability: tuple[int, int]) -> str:
    card = f"{gpu.name} (sm_{capability[0]}{capability[1]})"
    has = "has fp8 units, but" if gpu.fp8 else "has no fp8;"
    return (
        f"{_said(run)} on {card}: the card {has} {run.trainer_title} accepts fp8 only on sm_90 and newer, and rejects "
        "the file"
    )
