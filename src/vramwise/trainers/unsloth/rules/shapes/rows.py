"""Unsloth's own rules of one condition and one sentence: shapes."""

from __future__ import annotations

from functools import partial

from vramwise.rules.rows import row
from vramwise.types import RunSpec, Severity

_row = partial(row, topic="shapes")
_SCRIPT = """from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B", max_seq_length=2048)
model = FastLanguageModel.get_peft_model(model, r=16)
SFTTrainer(model=model, args=SFTConfig(output_dir="out", max_length={length})).train()
"""
_DEFAULT = 1024


def _longer(run: RunSpec) -> int | None:
    """Return a max_length that Unsloth does not use, or None."""
    written, most = run.config.get("max_length"), run.config.get("max_seq_length")
    if not isinstance(written, int) or not isinstance(most, int) or run.objective.rl is not None:
        return None
    return written if written > most or (written == _DEFAULT != most) else None


max_length_overruled = _row(
    id="max-length-overruled",
    severity=Severity.WARNING,
    still_runs=True,
    text="""max_length of the config is overruled by max_seq_length of the model.

    Rows are cut to `max_seq_length` of `from_pretrained`. A `max_length` of the config counts only where it is
    shorter, and 1024, TRL's own default, counts as not written. So a longer `max_length` trains on shorter rows than
    it says, and 1024 on longer ones.
    """,
    bad=_SCRIPT.format(length=4096),
    good=_SCRIPT.format(length=512),
    beyond_trainer="Unsloth replaces it without warning.",
    when=lambda run: _longer(run) is not None,
    key="max_length",
    message=lambda run: f"max_length {_longer(run)} has no effect: rows are cut to {run.shapes.sequence_len} tokens",
)
