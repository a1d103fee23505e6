"""LLaMA-Factory's own rules about optimizers."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.arguments.refusals import Held
from vramwise.trainers.llamafactory.keys import vocabulary
from vramwise.types import RunSpec

_BASE = (
    "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: identity\n"
    "pure_bf16: true\n"
)
# The values of `optim` that each accepts.
_TAKES = {
    "galore": ("adamw_torch", "adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit", "adafactor"),
    "apollo": ("adamw_torch",),
}


@rule(
    id="projected-optimizer-unsupported",
    bad=f"{_BASE}use_galore: true\n",
    good=f"{_BASE}use_galore: true\noptim: adamw_torch\n",
    beyond_trainer="LLaMA-Factory accepts the file and stops when it creates the optimizer, after the model is loaded.",
)
def projected_optimizer_unsupported(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """GaLore or APOLLO with an optimizer that LLaMA-Factory does not know for it.

    `use_galore` and `use_apollo` bring their own optimizer, chosen by `optim`: `adamw_torch`, for GaLore also 8-bit
    AdamW and Adafactor. The default of `optim` in transformers 5 is `adamw_torch_fused`, which is not among them: a
    file without the key, as the examples that LLaMA-Factory ships, loads the model and stops with `Unknown optim:
    adamw_torch_fused`. Layer-wise updates besides take no gradient accumulation.
    """
    has = Held(run, vocabulary(run.target.stack))
    for name, taken in _TAKES.items():
        if not has(f"use_{name}"):
            continue
        if has("optim") not in taken:
            edit = set_key if "optim" in run.config else insert_key
            beside = {} if edit is set_key else {"beside": f"use_{name}"}
            fix = unsafe("Set optim: adamw_torch", edit("optim", "adamw_torch", **beside))
            message = f"use_{name} takes optim {' or '.join(taken)}, and {has('optim')} is "
            message += "in force" if "optim" in run.config else "the default"
            yield Hit(f"{message}: LLaMA-Factory stops", "optim", fix)
        if has(f"{name}_layerwise") and run.batch.gradient_accumulation_steps != 1:
            message = f"{name}_layerwise updates weights during backward and does not support gradient accumulation"
            yield Hit(
                f"{message}: gradient_accumulation_steps {run.batch.gradient_accumulation_steps} stops the run",
                f"{name}_layerwise",
            )
