"""optimizer-unhandled"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="optimizer-unhandled",
    severity=Severity.ERROR,
    topic="optimizer",
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: ao_adamw_8bit\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\n",
    beyond_trainer="Axolotl's schema lists the name, but its trainer builder has no case for it and raises.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An optimizer that Axolotl's schema accepts and its trainer then refuses.

    `ao_adamw_4bit` and `ao_adamw_8bit` are still in the list of accepted names, but the code that builds the trainer
    no longer handles them: it raises "Unhandled optimizer" after the model has loaded. transformers has the same
    torchao optimizers under the names `adamw_torch_4bit` and `adamw_torch_8bit`.
    """
    name = run.optimizer.name
    if name not in schema_of(run).optimizer_group("raises_later"):
        return
    yield Hit(
        key="optimizer",
        message=f"optimizer {name} passes the schema, but Axolotl does not handle it: the run stops after loading",
        change=changes.handled_optimizer(run),
    )
