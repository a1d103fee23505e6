"""Axolotl's own rules of one condition and one sentence: method."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import delete_key, insert_key, safe, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.types import RunSpec, Severity

_row = partial(row, topic="method")

fused_mlp_with_lora = _row(
    id="fused-mlp-with-lora",
    text="""`flash_attn_fuse_mlp` with a LoRA adapter.

    Fusing puts gate and up projection into one module, so the linears that LoRA should adapt are gone. Axolotl refuses
    the file for `lora` and `qlora`.

    Remove the key: the MLP computes the same, and LoRA has kernels of its own (`lora_mlp_kernel`).
    """,
    bad="adapter: lora\nflash_attn_fuse_mlp: true\n",
    good="adapter: lora\nflash_attn_fuse_mlp: false\n",
    when=lambda run: run.adapter.kind in ("lora", "qlora") and run.config.get("flash_attn_fuse_mlp"),
    key="flash_attn_fuse_mlp",
    message=lambda run: (
        f"flash_attn_fuse_mlp with adapter: {run.adapter.kind}: the linears to adapt are fused away, Axolotl refuses "
        "the file"
    ),
    fix=safe("Leave the MLP unfused", delete_key("flash_attn_fuse_mlp")),
)

kto_unused_columns = _row(
    id="kto-unused-columns",
    text="""KTO training without `remove_unused_columns: false`.

    The trainer drops data columns that the model's forward does not name. KTO's labels and completions are such
    columns, so nothing would be left to learn from; Axolotl refuses the config until `remove_unused_columns: false` is
    written (`skip_prepare_dataset: true` brings it along).
    """,
    bad="rl: kto\nmicro_batch_size: 2\n",
    good="rl: kto\nmicro_batch_size: 2\nremove_unused_columns: false\n",
    when=lambda run: (
        run.objective.rl == "kto"
        and run.config.get("remove_unused_columns", not run.config.get("skip_prepare_dataset")) is not False
    ),
    key="remove_unused_columns",
    near=("rl",),
    message="rl: kto without remove_unused_columns: false is refused: KTO's own columns would be dropped",
    fix=safe("Keep the columns", insert_key("remove_unused_columns", False, beside="rl")),
)

lora_dropout_on_parameters = _row(
    id="lora-dropout-on-parameters",
    text="""LoRA dropout together with `lora_target_parameters`.

    `lora_target_parameters` puts LoRA on bare parameters, usually the 3-D weights of experts. There the update is added
    to the weight itself, not to a layer's output, so there is no input on which dropout could act. Axolotl refuses the
    file.

    Set `lora_dropout: 0`. That also saves a mask and a masked copy of the input at every LoRA layer.
    """,
    bad="adapter: lora\nlora_dropout: 0.05\nlora_target_parameters:\n  - mlp.experts.gate_up_proj\n",
    good="adapter: lora\nlora_dropout: 0\nlora_target_parameters:\n  - mlp.experts.gate_up_proj\n",
    when=lambda run: run.config.get("lora_target_parameters") and run.adapter.lora_dropout,
    key="lora_dropout",
    message=lambda run: (
        f"lora_dropout {run.adapter.lora_dropout:g} with lora_target_parameters: parameters take no dropout, Axolotl "
        "refuses the file"
    ),
    fix=unsafe("Train without LoRA dropout", set_key("lora_dropout", 0)),
)


def _saved_embeddings(run: RunSpec) -> list[str]:
    return [name for name in run.adapter.lora_modules_to_save if name in ("embed_tokens", "lm_head")]


new_tokens_train_embeddings = _row(
    id="new-tokens-train-embeddings",
    severity=Severity.WARNING,
    text="""A few new tokens make LoRA train the whole embedding and head.

    New tokens need trained rows, and listing `embed_tokens` and `lm_head` in `lora_modules_to_save` is the usual way:
    each becomes a full trainable copy beside the frozen original, with gradients and optimizer states, 8 bytes a
    parameter with Adam in bf16. For a vocabulary of 128256 and width 2048 that is 2.0 GiB for each of the two, to train
    a handful of rows.

    `peft_trainable_token_indices` trains only the rows of the new tokens: list their ids instead.
    """,
    costs_memory=True,
    bad="adapter: lora\nlora_modules_to_save:\n  - embed_tokens\n  - lm_head\ntokens:\n  - <|tool|>\n",
    good="adapter: lora\npeft_trainable_token_indices: [128256]\ntokens:\n  - <|tool|>\n",
    beyond_trainer="Axolotl asks for lora_modules_to_save when special tokens change, without a word on its cost.",
    when=lambda run: (
        run.adapter.kind
        and run.adapter.added_tokens
        and _saved_embeddings(run)
        and not run.config.get("peft_trainable_token_indices")
    ),
    key="lora_modules_to_save",
    message=lambda run: (
        f"{run.adapter.added_tokens} new token(s) train full copies of {' and '.join(_saved_embeddings(run))}, with "
        "gradients and optimizer states; peft_trainable_token_indices trains only the new rows"
    ),
)

new_tokens_untrained = _row(
    id="new-tokens-untrained",
    severity=Severity.WARNING,
    text="""New tokens are added under LoRA, but nothing trains their embeddings.

    The embedding grows by the new rows, filled at random around the mean of the old ones, and LoRA then freezes it: the
    new tokens keep what they were given at the start. The adapter can only learn around them.

    `peft_trainable_token_indices` with the ids of the new tokens trains just those rows and costs next to nothing.
    `lora_modules_to_save: [embed_tokens, lm_head]` trains all rows, at 8 bytes a parameter with Adam in bf16. Tokens
    that the tokenizer knows already need neither.
    """,
    bad="adapter: lora\nlora_target_linear: true\ntokens:\n  - <|tool|>\n",
    good="adapter: lora\nlora_target_linear: true\npeft_trainable_token_indices: [128256]\ntokens:\n  - <|tool|>\n",
    beyond_trainer="Axolotl looks at changed special tokens only; added tokens pass and stay frozen (run with PEFT).",
    when=lambda run: (
        run.adapter.kind
        and run.adapter.added_tokens
        and not run.config.get("peft_trainable_token_indices")
        and not run.adapter.lora_modules_to_save
    ),
    key=lambda run: "tokens" if run.config.get("tokens") else "special_tokens.additional_special_tokens",
    message=lambda run: (
        f"{run.adapter.added_tokens} token(s) are added, but LoRA freezes the embeddings: rows that are new are never "
        "trained"
    ),
)
