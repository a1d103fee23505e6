"""lora-without-peft"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_LORA = (
    "lora_r",
    "lora_alpha",
    "lora_target_modules",
    "lora_dropout",
    "lora_modules_to_save",
    "use_dora",
    "use_rslora",
)


@rule(
    id="lora-without-peft",
    severity=Severity.WARNING,
    topic="method",
    bad="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\nlora_r: 16\n",
    good=(
        "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\nuse_peft: true\nlora_r: 16\n"
    ),
    beyond_trainer="TRL reads the lora_* keys only if use_peft is on, and gives no warning.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """LoRA is configured, but `use_peft` is off: every weight is trained.

    `lora_r` and the other LoRA keys are read only with `use_peft: true`. Without it, the run is a full fine-tune:
    gradients and two optimizer states for every parameter, 16 bytes each with TRL's fp32 weights, and a learning rate
    that was meant for an adapter.
    """
    written = [key for key in _LORA if run.config.get(key) is not None]
    if run.adapter.kind is not None or not written:
        return
    edit = set_key("use_peft", True) if "use_peft" in run.config else insert_key("use_peft", True, beside=written[0])
    yield Hit(
        key=written[0],
        message=f"{written[0]} is set, but use_peft is off: no adapter is created and every weight is trained",
        fix=unsafe("Train the adapter: use_peft true", edit),
    )
