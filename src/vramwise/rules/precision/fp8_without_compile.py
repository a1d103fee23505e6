"""fp8-without-compile"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="fp8-without-compile",
    severity=Severity.WARNING,
    topic="precision",
    bad="base_model: meta-llama/Llama-3.2-1B\nfp8: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfp8: true\ntorch_compile: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """fp8 without torch.compile is no faster.

    In fp8, every linear layer first measures and casts its input, weight and gradient. Run separately, those extra
    passes over memory cancel the gain of the faster matrix product; torch.compile fuses them with other operations.
    Weights stay stored in bf16, so fp8 saves no weight memory either: without compilation there is no benefit.

    Set `torch_compile: true`, or drop fp8. `torch_compile: auto` counts where the torch version allows it.
    """
    if run.precision.compute != "fp8" or run.kernels.torch_compile:
        return
    said = "fp8: true" if run.keys["precision"] == "fp8" else "fp8"
    message = (
        f"{said} without {run.keys['torch_compile']}: the casts around every linear layer are not fused, so fp8 is no "
        "faster than bf16"
    )
    yield Hit(field="precision", message=message, change=changes.compile_model(run))
