"""Unsloth's own rules of one condition and one sentence: checkpointing."""

from __future__ import annotations

from functools import partial

from vramwise.rules.rows import row
from vramwise.types import Severity

_row = partial(row, topic="checkpointing")
_SCRIPT = """from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B", max_seq_length=2048)
model = FastLanguageModel.get_peft_model(model, r=16, use_gradient_checkpointing={way})
SFTTrainer(model=model, args=SFTConfig(output_dir="out", gradient_checkpointing={asked})).train()
"""

checkpointing_set_twice = _row(
    id="checkpointing-set-twice",
    severity=Severity.WARNING,
    still_runs=True,
    text="""Checkpointing is set in two places that say different things.

    `use_gradient_checkpointing` of `get_peft_model` decides how layers are checkpointed, and `gradient_checkpointing`
    of the config is TRL's switch. Where the first is False and the second is written as True, checkpointing stays on.
    Where the first is on and the second is written as False, it stays on as well: Unsloth restores its own setting
    when training begins. Set it in one place.
    """,
    bad=_SCRIPT.format(way="False", asked="True"),
    good=_SCRIPT.format(way='"unsloth"', asked="True"),
    beyond_trainer="Unsloth decides with a line in its log, or none.",
    when=lambda run: (
        run.config.get("gradient_checkpointing") is not None
        and "gradient_checkpointing" in run.config
        and run.config.document.script is not None
        and bool(run.config.get("gradient_checkpointing"))
        is not (run.config.get("use_gradient_checkpointing", "unsloth") is not False)
    ),
    key="gradient_checkpointing",
    message=lambda run: (
        f"gradient_checkpointing = {run.config.get('gradient_checkpointing')} beside use_gradient_checkpointing = "
        f"{run.config.get('use_gradient_checkpointing', 'unsloth')!r}: layers are checkpointed"
    ),
)
