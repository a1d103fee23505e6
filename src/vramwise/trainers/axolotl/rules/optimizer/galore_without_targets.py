"""galore-without-targets"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity


@rule(
    id="galore-without-targets",
    severity=Severity.ERROR,
    topic="optimizer",
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw\noptim_target_modules:\n  - attn\n  - mlp\n",
    beyond_trainer="Axolotl accepts it; transformers refuses when it builds the optimizer, after the model has loaded.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """GaLore or APOLLO without `optim_target_modules`.

    Both project the gradients of chosen linear layers to a low rank; that is where the optimizer's memory is saved.
    transformers has no default for the choice and stops while it builds the optimizer. `[attn, mlp]` picks the linear
    layers of attention and MLP by parts of their names, as in GaLore's own examples; `all_linear` picks every one.
    """
    if run.optimizer.name not in schema_of(run).optimizer_group("needs_target_modules"):
        return
    if run.config.get("optim_target_modules") is not None:
        return
    yield Hit(
        key="optimizer",
        message=(
            f"optimizer {run.optimizer.name} without optim_target_modules: transformers stops after the model loaded"
        ),
        fix=unsafe(
            "Project attention and MLP: optim_target_modules [attn, mlp]",
            insert_key("optim_target_modules", ["attn", "mlp"], beside="optimizer"),
        ),
    )
