"""LLaMA-Factory's own rules about gradient checkpointing."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_BASE = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"
_KEY, _OWN = "gradient_checkpointing", "disable_gradient_checkpointing"


@rule(
    id="checkpointing-switch-ignored",
    severity=Severity.WARNING,
    also=(Severity.INFO,),
    bad=f"{_BASE}gradient_checkpointing: false\n",
    good=f"{_BASE}disable_gradient_checkpointing: true\n",
    beyond_trainer="LLaMA-Factory reads only its own key and ignores the transformers key without warning.",
)
def checkpointing_switch_ignored(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """gradient_checkpointing: false does not switch checkpointing off.

    LLaMA-Factory turns checkpointing on by itself, before the trainer of transformers is there; its own key is
    `disable_gradient_checkpointing`. `gradient_checkpointing: false` is transformers' default and changes nothing: the
    run recomputes every block, about a quarter slower than it would be. The other way round,
    `gradient_checkpointing_kwargs` count only where `gradient_checkpointing: true` is set beside them, and
    `use_reentrant_gc` and `use_unsloth_gc` only while checkpointing is on.
    """
    config = run.config
    if config.get(_KEY) is False and run.savings.recompute and not config.get(_OWN):
        edits = (insert_key(_OWN, True, beside=_KEY), delete_key(_KEY))
        yield Hit(
            f"{_KEY}: false has no effect: checkpointing stays on unless {_OWN} is true",
            _KEY,
            unsafe(f"Write {_OWN}: true", *edits),
        )
    if config.get(f"{_KEY}_kwargs") and not config.get(_KEY):
        message = f"{_KEY}_kwargs has no effect without {_KEY}: true; use_reentrant_gc decides"
        yield Hit(message, f"{_KEY}_kwargs")
    if not run.savings.recompute:
        for key in ("use_reentrant_gc", "use_unsloth_gc"):
            if config.get(key):
                message = f"{key} has no effect: checkpointing is off"
                yield Hit(message, key, severity=Severity.INFO)
