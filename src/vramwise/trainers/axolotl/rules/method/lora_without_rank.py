"""lora-without-rank"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.resolve.adapter import PEFT_RANK
from vramwise.types import RunSpec, Severity

_TARGETS = ("lora_target_linear", "lora_target_modules", "lora_target_parameters", "peft_trainable_token_indices")


@rule(
    id="lora-without-rank",
    severity=Severity.ERROR,
    topic="method",
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nlora_target_linear: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n",
    beyond_trainer="Axolotl has no default for these keys and passes null on; PEFT fails after the model has loaded.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """LoRA without a rank, an alpha or targets.

    `lora_r`, `lora_alpha` and the `lora_target_*` keys have no default in Axolotl. It passes a missing key to PEFT as
    null. PEFT then stops with a TypeError about NoneType (rank, alpha) or with "No `target_modules` passed", after the
    model has been downloaded, loaded and prepared.

    Set all three. Rank 16 and alpha 32 on all linear layers are common starting values; memory grows with rank ×
    targets. Nothing is needed if `lora_model_dir` loads an existing adapter: its own settings apply.
    """
    if run.adapter.kind not in ("lora", "qlora") or run.config.get("lora_model_dir"):
        return
    rank, alpha = run.config.get("lora_r"), run.config.get("lora_alpha")
    if not rank and not run.config.get("lora_rank_pattern"):
        fix = unsafe("Set lora_r: 16", insert_key("lora_r", 16, beside="adapter"))
        found = "no lora_r" if rank is None else f"lora_r {rank}"
        message = f"{_message(run, found, 'a rank')}; predictions assume PEFT's default, {PEFT_RANK}"
        yield Hit(key="lora_r", message=message, fix=fix)
    if alpha is None and not run.config.get("lora_alpha_pattern"):
        fix = unsafe("Set lora_alpha to twice the rank", insert_key("lora_alpha", 2 * (rank or 16), beside="lora_r"))
        yield Hit(key="lora_alpha", message=_message(run, "no lora_alpha", "an alpha"), fix=fix)
    if not any(run.config.get(key) for key in _TARGETS):
        fix = unsafe("Target every linear layer", insert_key("lora_target_linear", True, beside="lora_alpha"))
        found = "neither lora_target_linear nor lora_target_modules"
        yield Hit(key="lora_target_modules", message=_message(run, found, "targets"), fix=fix)


def _message(run: RunSpec, found: str, wanted: str) -> str:
    return (
        f"adapter: {run.adapter.kind} with {found}: Axolotl has no default for {wanted}, so PEFT fails after the model "
        "has loaded"
    )
