"""dpo-liger-loss-unsupported"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity

_KEY = "dpo_use_liger_kernel"


@rule(
    id="dpo-liger-loss-unsupported",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="loss",
    bad="rl: dpo\nadapter: lora\ndpo_use_liger_kernel: true\ndpo_loss_type: [ipo]\n",
    good="rl: dpo\nadapter: lora\ndpo_use_liger_kernel: true\ndpo_loss_type: [sigmoid]\n",
    options="--with axolotl==0.20.0",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Liger's DPO loss with a loss type it does not have.

    `dpo_use_liger_kernel` computes head and loss in chunks, so that the logits of both answers are never held whole. It
    has no IPO loss, which Axolotl refuses, and knows one loss type at a time: only the first entry of `dpo_loss_type`
    is used, the others are dropped with a warning.

    Take another loss type, or turn the kernel off and make room for the logits. Since Axolotl 0.21 (TRL 1.14) the
    kernel gives log-probabilities from which every loss type is computed, and there is nothing to report.
    """
    if not run.config.get(_KEY) or schema_of(run).since("0.21.0"):
        return
    types = run.config.get("dpo_loss_type", ())
    types = list(types) if isinstance(types, list | tuple) else [types]
    if run.objective.rl == "ipo" or (types and types[0] == "ipo"):
        message = f"{_KEY} with the ipo loss, which Liger does not have: Axolotl refuses the file"
        yield Hit(key=_KEY, message=message, fix=safe("Compute the loss without Liger", delete_key(_KEY)))
    elif len(types) > 1:
        rest = ", ".join(str(name) for name in types[1:])
        message = f"{_KEY} uses only {types[0]}, the first of dpo_loss_type; {rest} is ignored"
        fix = unsafe("Compute every loss, without Liger", delete_key(_KEY))
        yield Hit(key="dpo_loss_type", near=(_KEY,), message=message, fix=fix, severity=Severity.WARNING)
