"""single-lora-target"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_KEY = "lora_target_modules"
# Signs of a regular expression that may match a module's whole name.
_EXPRESSION = (".*", "|", "(", "\\", "[")


@rule(
    id="single-lora-target",
    severity=Severity.ERROR,
    topic="method",
    bad=(
        "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nuse_peft: true\n"
        "lora_target_modules:\n  - q_proj\n"
    ),
    good=(
        "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nuse_peft: true\n"
        "lora_target_modules:\n  - q_proj\n  - v_proj\n"
    ),
    beyond_trainer="TRL's parser accepts the file, but PEFT stops once the model is loaded.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """One LoRA target alone is taken for a regular expression, which matches no module.

    TRL hands a list of one to PEFT as a text, so that `all-linear` works. Any other text is an expression for PEFT, to
    be matched against the whole name: `q_proj` is no name such as `model.layers.0.self_attn.q_proj`, and the run stops
    with `Target modules … not found in the base model`. Write `.*q_proj`, or name more than one.
    """
    names = run.config.get(_KEY)
    names = [names] if isinstance(names, str) else names
    if run.adapter.kind is None or not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        return
    name = names[0]
    if name == "all-linear" or any(sign in name for sign in _EXPRESSION):
        return
    yield Hit(
        key=_KEY,
        message=f"{_KEY} names only {name}, which PEFT treats as a regular expression that matches no full module name",
        fix=unsafe(f"Write .*{name}", set_key(_KEY, f".*{name}")),
    )
