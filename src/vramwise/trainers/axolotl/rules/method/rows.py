"""Axolotl rules with one condition and one message: method."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import delete_key, insert_key, safe, set_key, unsafe
from vramwise.rules.rows import Case, When, row
from vramwise.trainers.axolotl.plugins import lists_foreign_plugin
from vramwise.types import Fix, RunSpec, Severity

_row = partial(row, topic="method")

fused_mlp_with_lora = _row(
    id="fused-mlp-with-lora",
    text="""`flash_attn_fuse_mlp` with a LoRA adapter.

    Fusing merges the gate and up projections into one module, so the linears that LoRA should adapt no longer exist.
    Axolotl refuses the key with `lora` and `qlora`.

    Remove the key: the MLP computes the same, and LoRA has its own kernels (`lora_mlp_kernel`).
    """,
    bad="adapter: lora\nflash_attn_fuse_mlp: true\n",
    good="adapter: lora\nflash_attn_fuse_mlp: false\n",
    when=lambda run: run.adapter.kind in ("lora", "qlora") and run.config.get("flash_attn_fuse_mlp"),
    key="flash_attn_fuse_mlp",
    message=lambda run: (
        f"Axolotl refuses flash_attn_fuse_mlp with adapter: {run.adapter.kind}: fusing removes the linears that LoRA "
        "adapts"
    ),
    fix=safe("Do not fuse the MLP", delete_key("flash_attn_fuse_mlp")),
)

kto_unused_columns = _row(
    id="kto-unused-columns",
    text="""KTO training without `remove_unused_columns: false`.

    The trainer drops data columns that are not arguments of the model's forward. KTO's labels and completions are such
    columns, so nothing would be left to learn from. Axolotl refuses the config unless `remove_unused_columns: false` is
    set (`skip_prepare_dataset: true` implies it).
    """,
    bad="rl: kto\nmicro_batch_size: 2\n",
    good="rl: kto\nmicro_batch_size: 2\nremove_unused_columns: false\n",
    when=lambda run: (
        run.objective.rl == "kto"
        and run.config.get("remove_unused_columns", not run.config.get("skip_prepare_dataset")) is not False
    ),
    key="remove_unused_columns",
    message="Axolotl refuses rl: kto without remove_unused_columns: false: KTO's columns would be dropped",
    fix=safe("Keep the columns", insert_key("remove_unused_columns", False, beside="rl")),
)

lora_dropout_on_parameters = _row(
    id="lora-dropout-on-parameters",
    text="""LoRA dropout together with `lora_target_parameters`.

    `lora_target_parameters` puts LoRA on bare parameters, usually the 3-D weights of experts. The update is added to
    the weight itself, not to a layer's output, so dropout has no input to act on. Axolotl refuses the file.

    Set `lora_dropout: 0`. This also saves a mask and a masked copy of the input at every LoRA layer.
    """,
    bad="adapter: lora\nlora_dropout: 0.05\nlora_target_parameters:\n  - mlp.experts.gate_up_proj\n",
    good="adapter: lora\nlora_dropout: 0\nlora_target_parameters:\n  - mlp.experts.gate_up_proj\n",
    when=lambda run: run.config.get("lora_target_parameters") and run.adapter.lora_dropout,
    key="lora_dropout",
    message=lambda run: (
        f"Axolotl refuses lora_dropout {run.adapter.lora_dropout:g} with lora_target_parameters: parameters do not "
        "support dropout"
    ),
    fix=unsafe("Train without LoRA dropout", set_key("lora_dropout", 0)),
)


def _added_tokens(run: RunSpec) -> str:
    return "1 added token" if run.adapter.added_tokens == 1 else f"{run.adapter.added_tokens} added tokens"


def _saved_embeddings(run: RunSpec) -> list[str]:
    return [name for name in run.adapter.lora_modules_to_save if name in ("embed_tokens", "lm_head")]


new_tokens_train_embeddings = _row(
    id="new-tokens-train-embeddings",
    severity=Severity.WARNING,
    text="""A few new tokens make LoRA train the whole embedding and head.

    New tokens need trained rows, and the usual way is to list `embed_tokens` and `lm_head` in `lora_modules_to_save`.
    Each becomes a full trainable copy beside the frozen original, with gradients and optimizer states: 8 bytes per
    parameter with Adam in bf16. For a vocabulary of 128256 and width 2048 that is 2.0 GiB for each of the two, to train
    a handful of rows.

    Use `peft_trainable_token_indices` instead and list the ids of the new tokens: it trains only their rows.
    """,
    costs_memory=True,
    bad="adapter: lora\nlora_modules_to_save:\n  - embed_tokens\n  - lm_head\ntokens:\n  - <|tool|>\n",
    good="adapter: lora\npeft_trainable_token_indices: [128256]\ntokens:\n  - <|tool|>\n",
    beyond_trainer="Axolotl asks for lora_modules_to_save when special tokens change, without mentioning its cost.",
    when=lambda run: (
        run.adapter.kind
        and run.adapter.added_tokens
        and _saved_embeddings(run)
        and not run.config.get("peft_trainable_token_indices")
    ),
    key="lora_modules_to_save",
    message=lambda run: (
        f"full copies of {' and '.join(_saved_embeddings(run))} are trained for {_added_tokens(run)}, with "
        "gradients and optimizer states; peft_trainable_token_indices trains only the new rows"
    ),
)

new_tokens_untrained = _row(
    id="new-tokens-untrained",
    severity=Severity.WARNING,
    text="""New tokens are added under LoRA, but nothing trains their embeddings.

    The new rows of the embedding get random values around the mean of the old ones. LoRA then freezes the embedding, so
    the new tokens keep these values and the adapter can only learn around them.

    `peft_trainable_token_indices` with the ids of the new tokens trains just those rows and costs almost nothing.
    `lora_modules_to_save: [embed_tokens, lm_head]` trains all rows, at 8 bytes per parameter with Adam in bf16. Tokens
    that the tokenizer already knows need neither.
    """,
    bad="adapter: lora\nlora_target_linear: true\ntokens:\n  - <|tool|>\n",
    good="adapter: lora\nlora_target_linear: true\npeft_trainable_token_indices: [128256]\ntokens:\n  - <|tool|>\n",
    beyond_trainer="Axolotl checks only changed special tokens; added tokens stay frozen (verified with PEFT).",
    when=lambda run: (
        run.adapter.kind
        and run.adapter.added_tokens
        and not run.config.get("peft_trainable_token_indices")
        and not run.adapter.lora_modules_to_save
    ),
    key=lambda run: "tokens" if run.config.get("tokens") else "special_tokens.additional_special_tokens",
    message=lambda run: f"LoRA freezes the embeddings, so new rows for {_added_tokens(run)} are never trained",
)


def _train_everything(run: RunSpec) -> Fix:
    """Remove the adapter and the quantisation, since quantised weights cannot be trained without one."""
    held = [set_key(key, False) for key in ("load_in_4bit", "load_in_8bit") if run.config.get(key)]
    return unsafe("Fine-tune all weights", delete_key("adapter"), *held)


onebitllms_with_lora = _row(
    id="onebitllms-with-lora",
    text="""1-bit training with a LoRA adapter.

    `use_onebitllms` replaces every linear with one that rounds its own weight to ternary values during training. An
    adapter would freeze exactly those weights, so Axolotl refuses `lora` and `qlora` with it.

    Fine-tune all weights, or train an adapter on a plain checkpoint.
    """,
    bad="adapter: lora\nuse_onebitllms: true\n",
    good="use_onebitllms: true\n",
    when=lambda run: run.config.get("use_onebitllms") and run.adapter.kind in ("lora", "qlora"),
    key="use_onebitllms",
    message=lambda run: (
        f"Axolotl refuses use_onebitllms with adapter: {run.adapter.kind}: 1-bit linears train their own weights"
    ),
    fix=_train_everything,
)


def _unpacked(key: str, when: When) -> Case:
    return Case(
        when=when,
        key=key,
        message=lambda run: (
            f"Axolotl refuses {key} with rl: {run.objective.rl}: RL rows hold one answer each and cannot be packed"
        ),
        fix=unsafe(f"Set {key} to false", set_key(key, False)),
    )


packing_with_rl = _row(
    id="packing-with-rl",
    text="""Sample packing with preference or RL training.

    RL trainers compare answers pair by pair or group by group, so a row must hold one answer and cannot be packed.
    Axolotl refuses `sample_packing` with any `rl`, and `eval_sample_packing` with `rl: kto`.

    Turn packing off. The micro-batch then counts single rows, not packed ones. With short samples a step has fewer
    tokens than before, so you may be able to raise the micro-batch.
    """,
    bad="rl: dpo\nsample_packing: true\nsequence_len: 2048\n",
    good="rl: dpo\nsample_packing: false\nsequence_len: 2048\n",
    when=lambda run: run.objective.rl,
    cases=(
        _unpacked("sample_packing", lambda run: run.config.get("sample_packing")),
        _unpacked(
            "eval_sample_packing", lambda run: run.objective.rl == "kto" and run.config.get("eval_sample_packing")
        ),
    ),
)

unfrozen_with_layers_to_transform = _row(
    id="unfrozen-with-layers-to-transform",
    text="""The settings that choose layers for LoRA contradict each other or are incomplete.

    `unfrozen_parameters` freezes everything it does not name, including LoRA weights. `peft_layers_to_transform`
    chooses the layers that get LoRA weights to train. Together they would freeze weights that should be trained, so
    Axolotl refuses the file. It also refuses `peft_layers_pattern`, the name of the layer list, without
    `peft_layers_to_transform`.

    Use one of the two. To train whole modules beside LoRA, use `lora_modules_to_save`.
    """,
    bad="adapter: lora\npeft_layers_to_transform: [0, 1]\nunfrozen_parameters:\n  - ^lm_head.weight$\n",
    good="adapter: lora\npeft_layers_to_transform: [0, 1]\n",
    cases=(
        Case(
            when=lambda run: (
                run.adapter.kind
                and run.config.get("peft_layers_to_transform")
                and run.config.get("unfrozen_parameters")
            ),
            key="unfrozen_parameters",
            message=(
                "Axolotl refuses unfrozen_parameters with peft_layers_to_transform: it would freeze the added LoRA "
                "weights"
            ),
        ),
        Case(
            when=lambda run: run.config.get("peft_layers_pattern") and not run.config.get("peft_layers_to_transform"),
            key="peft_layers_pattern",
            message="Axolotl refuses peft_layers_pattern without peft_layers_to_transform",
        ),
    ),
)

relora_misused = _row(
    id="relora-misused",
    text="""ReLoRA without a required setting, or with an unsupported one.

    ReLoRA merges the adapter into the base every `jagged_restart_steps` steps and starts a new one. Axolotl refuses it
    without that key or without a `lora`/`qlora` adapter. It also refuses it under FSDP and DeepSpeed (merging needs
    whole weights), with the `one_cycle` schedule (which cannot restart) and with fused MLP modules (which cannot be
    merged into).
    """,
    bad="adapter: lora\nrelora: true\njagged_restart_steps: 100\nlr_scheduler: one_cycle\n",
    good="adapter: lora\nrelora: true\njagged_restart_steps: 100\nlr_scheduler: cosine\n",
    when="relora",
    cases=(
        Case(
            when=lambda run: not run.config.get("jagged_restart_steps"),
            key="relora",
            message="Axolotl refuses relora without jagged_restart_steps, which says when to merge",
        ),
        Case(
            when=lambda run: (
                run.adapter.kind not in ("lora", "qlora", "mora")
                and not (run.adapter.kind and lists_foreign_plugin(run))
            ),
            key="adapter",
            message=lambda run: (
                f"Axolotl refuses relora with adapter {run.adapter.kind or 'unset'}: it needs lora or qlora"
            ),
        ),
        *(
            Case(when=key, key=key, message=f"Axolotl refuses relora with {key}: merging needs whole weights")
            for key in ("fsdp", "fsdp_config", "deepspeed")
        ),
        Case(
            when=lambda run: run.config.get("lr_scheduler") == "one_cycle",
            key="lr_scheduler",
            message="Axolotl refuses relora with lr_scheduler: one_cycle, which cannot restart",
            fix=unsafe("Use the cosine schedule", set_key("lr_scheduler", "cosine")),
        ),
        Case(
            when="flash_attn_fuse_mlp",
            key="flash_attn_fuse_mlp",
            message="Axolotl refuses relora with flash_attn_fuse_mlp: LoRA cannot be merged into fused modules",
            fix=unsafe("Do not fuse the MLP", delete_key("flash_attn_fuse_mlp")),
        ),
    ),
)
