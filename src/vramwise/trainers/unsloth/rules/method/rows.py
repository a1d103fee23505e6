"""Unsloth's own rules of one condition and one sentence: method."""

from __future__ import annotations

from functools import partial

from vramwise.rules.rows import row
from vramwise.trainers.unsloth.keys import since
from vramwise.types import RunSpec, Severity

_row = partial(row, topic="method")
_MODEL = "model: unsloth/Llama-3.2-1B\n"
_TARGETS = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"

quantised_full_finetune = _row(
    id="quantised-full-finetune",
    severity=Severity.WARNING,
    still_runs=True,
    text="""Full fine-tuning turns the 4-bit base off.

    `full_finetuning = True` (`training_type: full` in a file) trains every weight, which a quantised weight cannot be.
    Unsloth says so in its log, drops `load_in_4bit` and `load_in_8bit`, and loads 16 bits: four times the memory, and
    gradients and optimizer states for every weight besides.
    """,
    bad=f"{_MODEL}training:\n  training_type: full\n  load_in_4bit: true\n",
    good=f"{_MODEL}training:\n  training_type: full\n  load_in_4bit: false\n",
    beyond_trainer="Unsloth goes on with a line in its log.",
    when=lambda run: (
        run.config.get("full_finetuning") and (run.config.get("load_in_4bit") or run.config.get("load_in_8bit"))
    ),
    key=lambda run: "load_in_4bit" if run.config.get("load_in_4bit") else "load_in_8bit",
    message="full fine-tuning ignores the quantised base: all weights are loaded in 16 bits and trained",
)

embeddings_trained_whole = _row(
    id="embeddings-trained-whole",
    severity=Severity.WARNING,
    costs_memory=True,
    text="""embed_tokens and lm_head as LoRA targets are trained as whole matrices.

    Unsloth moves both from `target_modules` to `modules_to_save`: a trained copy of each beside the frozen one, with a
    gradient and optimizer states of its own size. In a model with 128,256 words and a width of 4,096 that is 1 GiB for
    each copy in 16 bits, the same again for its gradient, and 4 GiB of 32-bit states.
    """,
    bad=f'{_MODEL}lora:\n  lora_r: 16\n  target_modules: "{_TARGETS},embed_tokens,lm_head"\n',
    good=f'{_MODEL}lora:\n  lora_r: 16\n  target_modules: "{_TARGETS}"\n',
    beyond_trainer="Unsloth moves them with a line in its log.",
    when=lambda run: run.adapter.kind is not None and bool(_whole(run)),
    key="lora_target_modules",
    message=lambda run: (
        f"{' and '.join(_whole(run))} in target_modules: trained as a whole copy, with gradients and optimizer states "
        "of its own size"
    ),
)


def _whole(run: RunSpec) -> list[str]:
    """Return embeddings and head if the file lists them as targets."""
    written = run.config.get("lora_target_modules")
    return [name for name in ("embed_tokens", "lm_head") if isinstance(written, list) and name in written]


dropout_costs_masks = _row(
    id="dropout-costs-masks",
    severity=Severity.INFO,
    text="""lora_dropout above 0 costs memory and speed in Unsloth's kernels.

    With dropout each of the seven projections of a layer keeps a mask, and 4-bit weights are opened anew for every
    product instead of into one buffer. Before Unsloth 2026.10 dropout left the fast path altogether: LoRA ran as PEFT
    has it. Unsloth's own advice is 0.
    """,
    bad=f"{_MODEL}lora:\n  lora_r: 16\n  lora_dropout: 0.05\n",
    good=f"{_MODEL}lora:\n  lora_r: 16\n  lora_dropout: 0\n",
    beyond_trainer="Unsloth trains on, slower.",
    when=lambda run: run.adapter.kind is not None and run.adapter.lora_dropout > 0,
    field="lora_dropout",
    message=lambda run: (
        f"lora_dropout {run.adapter.lora_dropout:g}: "
        + (
            "the kernels keep a mask for each projection"
            if since(run.target.stack, 2026, 10)
            else "LoRA leaves Unsloth's fast path and runs as PEFT has it"
        )
    ),
)
