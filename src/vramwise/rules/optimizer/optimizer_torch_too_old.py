"""optimizer-torch-too-old"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

# ADOPT needs torch 2.5.1; a target has only minor versions, so 2.5 is accepted.
_OLDEST = {"adopt_adamw": (2, 5)}


@rule(
    id="optimizer-torch-too-old",
    severity=Severity.ERROR,
    topic="optimizer",
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adopt_adamw\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adopt_adamw\n",
    options="--torch 2.4",
    good_options="--torch 2.8",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The optimizer needs a newer torch than the target has.

    ADOPT (`adopt_adamw`) uses functions that torch has from 2.5.1 on. On anything older, the trainer rejects the file
    or, in versions without the check, the optimizer fails when it is created. Upgrade torch, or train with AdamW.
    """
    oldest = _OLDEST.get(run.optimizer.name)
    if oldest is None or run.target.torch >= oldest:
        return
    have = ".".join(str(part) for part in run.target.torch)
    yield Hit(
        field="optimizer",
        message=(
            f"optimizer {run.optimizer.name} needs torch 2.5.1, but the target has {have}: the run stops when the "
            "optimizer is created, if not earlier"
        ),
        change=changes.fused_adamw(run),
    )
