"""layerwise-optimizer-unsupported"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import Fix, RunSpec, Severity


@rule(
    id="layerwise-optimizer-unsupported",
    severity=Severity.ERROR,
    topic="optimizer",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw_layerwise\n"
        "optim_target_modules: [attn, mlp]\ngradient_accumulation_steps: 4\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw_layerwise\n"
        "optim_target_modules: [attn, mlp]\ngradient_accumulation_steps: 1\n"
    ),
    beyond_trainer="Axolotl accepts it; transformers refuses when it builds the optimizer, after the model has loaded.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A layer-wise optimizer with gradient accumulation or on several GPUs.

    Layer-wise GaLore and APOLLO update each layer inside the backward pass and drop its gradient at once, so no
    gradient is left to accumulate or to reduce across GPUs. transformers stops when either is asked for. The variants
    without `_layerwise` keep gradients and take both.
    """
    name = run.optimizer.name
    if not name.endswith("_layerwise") or name not in schema_of(run).optimizer_group("needs_target_modules"):
        return
    steps, whole = run.batch.gradient_accumulation_steps, name.removesuffix("_layerwise")
    fix = unsafe(f"Keep the gradients: {whole}", set_key("optimizer", whole))
    if steps != 1:
        yield _hit(name, f"gradient_accumulation_steps {steps}", "gradient_accumulation_steps", fix)
    if run.batch.gpus > 1:
        yield _hit(name, f"{run.batch.gpus} GPUs", "optimizer", fix)


def _hit(name: str, what: str, key: str, fix: Fix) -> Hit:
    message = f"{what} with optimizer {name}: it drops each gradient inside the backward pass, so transformers stops"
    return Hit(key=key, near=("optimizer",), message=message, fix=fix)
