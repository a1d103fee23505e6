"""Unsloth's own rules of one condition and one sentence: precision."""

from __future__ import annotations

from functools import partial

from vramwise.rules.rows import row
from vramwise.trainers.unsloth.keys import release_of
from vramwise.types import Severity

_row = partial(row, topic="precision")
_SCRIPT = """from unsloth import FastLanguageModel
from transformers import TrainingArguments
from trl import SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B", max_seq_length=2048)
model = FastLanguageModel.get_peft_model(model, r=16)
SFTTrainer(model=model, args=TrainingArguments(output_dir="out"{more})).train()
"""

mixed_precision_unset = _row(
    id="mixed-precision-unset",
    severity=Severity.WARNING,
    still_runs=True,
    text="""Neither bf16 nor fp16 is set, and this Unsloth does not turn mixed precision on.

    Since 2025.2, Unsloth's trainers set `bf16` or `fp16` to the type of the model where neither is written. Before, the
    run goes without autocast: adapters stay in float32, and what they touch may be computed in float32 too, with twice
    the memory. Unsloth's maintainers found it to be the cause of out-of-memory errors.

    Set `bf16 = True`, or `fp16 = True` on a card without bf16.
    """,
    options="--with unsloth==2024.8",
    bad=_SCRIPT.format(more=""),
    good=_SCRIPT.format(more=", bf16=True"),
    beyond_trainer="Unsloth trains on without a word.",
    when=lambda run: not run.precision.autocast,
    field="autocast",
    message=lambda run: (
        f"neither bf16 nor fp16 is set: Unsloth {release_of(run.target.stack)} runs without mixed precision, and "
        "adapters in float32; set bf16 = True, or fp16 = True on a card without bf16"
    ),
)
