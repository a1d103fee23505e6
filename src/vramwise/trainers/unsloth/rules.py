"""Unsloth's own rules, topic by topic."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.rules.rows import row
from vramwise.timeline import MemoryReport
from vramwise.trainers.unsloth.keys import release_of, since
from vramwise.trainers.unsloth.refusals import refusals
from vramwise.types import RunSpec, Severity

_SCRIPT = """from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B", max_seq_length=2048)
model = FastLanguageModel.get_peft_model(model, r=16)
SFTTrainer(model=model, args=SFTConfig(output_dir="out", max_length={length})).train()
"""
_ARGUMENTS = """from unsloth import FastLanguageModel
from transformers import TrainingArguments
from trl import SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B", max_seq_length=2048)
model = FastLanguageModel.get_peft_model(model, r=16)
SFTTrainer(model=model, args=TrainingArguments(output_dir="out"{more})).train()
"""
_DEFAULT = 1024


def _longer(run: RunSpec) -> int | None:
    """Return a max_length that Unsloth does not use, or None."""
    written, most = run.config.get("max_length"), run.config.get("max_seq_length")
    if not isinstance(written, int) or not isinstance(most, int) or run.objective.rl is not None:
        return None
    return written if written > most or (written == _DEFAULT != most) else None


max_length_overruled = row(
    id="max-length-overruled",
    topic="shapes",
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


_MODEL = "model: unsloth/Llama-3.2-1B\n"
_TARGETS = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"

quantised_full_finetune = row(
    id="quantised-full-finetune",
    topic="method",
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

embeddings_trained_whole = row(
    id="embeddings-trained-whole",
    topic="method",
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


dropout_costs_masks = row(
    id="dropout-costs-masks",
    topic="method",
    severity=Severity.INFO,
    text="""lora_dropout above 0 costs memory and speed in Unsloth's kernels.

    With dropout each of the seven projections of a layer keeps a mask, and 4-bit weights are opened anew for every
    product instead of into one buffer. Before Unsloth 2026.10.7 dropout left the fast path altogether: LoRA ran as PEFT
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
            if since(run.target.stack, 2026, 10, 7)
            else "LoRA leaves Unsloth's fast path and runs as PEFT has it"
        )
    ),
)


_CHECKPOINTED = """from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B", max_seq_length=2048)
model = FastLanguageModel.get_peft_model(model, r=16, use_gradient_checkpointing={way})
SFTTrainer(model=model, args=SFTConfig(output_dir="out", gradient_checkpointing={asked})).train()
"""

checkpointing_set_twice = row(
    id="checkpointing-set-twice",
    topic="checkpointing",
    severity=Severity.WARNING,
    still_runs=True,
    text="""Checkpointing is set in two places that say different things.

    `use_gradient_checkpointing` of `get_peft_model` decides how layers are checkpointed, and `gradient_checkpointing`
    of the config is TRL's switch. Where the first is False and the second is written as True, checkpointing stays on.
    Where the first is on and the second is written as False, it stays on as well: Unsloth restores its own setting
    when training begins. Set it in one place.
    """,
    bad=_CHECKPOINTED.format(way="False", asked="True"),
    good=_CHECKPOINTED.format(way='"unsloth"', asked="True"),
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


_BATCHES = "model: unsloth/Llama-3.2-1B\ntraining:\n  max_seq_length: 2048\n  batch_size: 2\n"

several_cards = row(
    id="several-cards-one-used",
    topic="sharding",
    severity=Severity.WARNING,
    still_runs=True,
    text="""Unsloth trains on one card unless it is started with torchrun.

    Started with `python`, in a notebook, or by its own command, a run loads the model onto one card and leaves the
    others idle. `torchrun --nproc_per_node N script.py` gives each card a whole copy of the model and a share of the
    batch. `device_map = "balanced"` spreads the layers of one copy over the cards, which then work in turn: it makes
    room for a larger model and does not train faster.
    """,
    bad=_BATCHES,
    good=_BATCHES,
    options="--gpus 2",
    good_options="--gpus 1",
    beyond_trainer="Unsloth says how many cards it found, and uses one.",
    when=lambda run: run.target.gpus > 1 and run.sharding.kind == "ddp",
    field="gpus",
    message=lambda run: (
        f"{run.target.gpus} cards: only torchrun makes Unsloth use them all, and each holds the whole model"
    ),
)


@rule(
    id="refused-by-unsloth",
    topic="config",
    bad=f"{_MODEL}training:\n  max_seq_length: 2048\n  micro_batch_size: 2\n",
    good=f"{_MODEL}training:\n  max_seq_length: 2048\n  batch_size: 2\n",
)
def refused_by_unsloth(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """What Unsloth refuses before anything is trained.

    Its command takes no key that it does not know, in no section. In scripts, two of `load_in_4bit`, `load_in_8bit`,
    `load_in_16bit` and `load_in_fp8` at once stop `from_pretrained`; `fp16 = True` on weights in bfloat16, and
    `bf16 = True` on weights in float16, stop the trainer.
    """
    yield from refusals(run)


mixed_precision_unset = row(
    topic="precision",
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
    bad=_ARGUMENTS.format(more=""),
    good=_ARGUMENTS.format(more=", bf16=True"),
    beyond_trainer="Unsloth trains on without a warning.",
    when=lambda run: not run.precision.autocast,
    field="autocast",
    message=lambda run: (
        f"neither bf16 nor fp16 is set: Unsloth {release_of(run.target.stack)} runs without mixed precision, and "
        "adapters in float32; set bf16 = True, or fp16 = True on a card without bf16"
    ),
)
