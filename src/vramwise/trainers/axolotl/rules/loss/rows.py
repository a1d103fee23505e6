"""Axolotl's own rules of one condition and one sentence: loss."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import delete_key, insert_key, safe, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.trainers.axolotl.plugins import LIGER, listed_plugins
from vramwise.types import Fix, RunSpec

_FUSED_LOSS = "liger_fused_linear_cross_entropy"
_TOKEN_SCALING = "liger_use_token_scaling"
_ORIGINAL_MLP = "tiled_mlp_use_original_mlp"

_row = partial(row, topic="loss")

grpo_liger_sequence_parallel = _row(
    id="grpo-liger-sequence-parallel",
    text="""GRPO with Liger's loss and a sequence split over GPUs.

    Liger's fused GRPO loss wants the whole sequence of every sample, and context parallelism gives each GPU a part of
    it. Axolotl refuses the combination.

    Choose one: Liger's loss saves the logits (tokens × vocabulary), context parallelism divides activations by the
    GPUs.
    """,
    bad="rl: grpo\ntrl:\n  use_liger_loss: true\ncontext_parallel_size: 2\n",
    good="rl: grpo\ntrl:\n  use_liger_loss: false\ncontext_parallel_size: 2\n",
    options="--gpus 2",
    when=lambda run: (
        run.objective.rl == "grpo"
        and run.config.get("trl.use_liger_loss")
        and run.config.get("context_parallel_size", 1) > 1
    ),
    key="trl.use_liger_loss",
    message=lambda run: (
        f"trl.use_liger_loss with context_parallel_size {run.config.get('context_parallel_size')}: Liger's GRPO loss "
        "needs whole sequences, Axolotl refuses the file"
    ),
    fix=unsafe("Compute the loss without Liger", set_key("trl.use_liger_loss", False)),
)


def _tile_original(run: RunSpec) -> Fix:
    edit = insert_key(_ORIGINAL_MLP, True, beside="tiled_mlp")
    unset = _ORIGINAL_MLP not in run.config
    return safe("Write the default", edit) if unset else unsafe("Tile the MLP that is there", edit)


liger_tiled_mlp_conflict = _row(
    id="liger-tiled-mlp-conflict",
    text="""Liger's MLP kernel and the tiled MLP are both on.

    Both replace the model's MLP. They go together only if the tiling wraps the MLP that is there
    (`tiled_mlp_use_original_mlp: true`). That is the default, but Axolotl checks before it fills in defaults: the key
    has to be written, or it stops.
    """,
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_glu_activation: true\ntiled_mlp: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_glu_activation: true\ntiled_mlp: true\ntiled_mlp_use_original_mlp: true\n"
    ),
    when=lambda run: (
        LIGER in listed_plugins(run)
        and run.config.get("liger_glu_activation") is True
        and run.config.get("tiled_mlp") is True
        and not run.config.get(_ORIGINAL_MLP)
    ),
    key="tiled_mlp",
    message=f"tiled_mlp with liger_glu_activation needs {_ORIGINAL_MLP}: true written in the file: Axolotl stops",
    fix=_tile_original,
)


def _fuse_or_unscale(run: RunSpec) -> Fix:
    if run.kernels.loss_kernel != "stock" or run.sharding.tensor_parallel_size > 1:  # the kernel would be refused
        return unsafe(f"Remove {_TOKEN_SCALING}", delete_key(_TOKEN_SCALING))
    return unsafe(f"Turn {_FUSED_LOSS} on", insert_key(_FUSED_LOSS, True, beside=_TOKEN_SCALING))


liger_token_scaling_without_flce = _row(
    id="liger-token-scaling-without-flce",
    text="""`liger_use_token_scaling` without Liger's fused linear cross entropy.

    Token scaling is an option of that one loss kernel; Axolotl stops when the kernel is off. Turn the kernel on, or
    remove the option.
    """,
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_use_token_scaling: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_use_token_scaling: true\nliger_fused_linear_cross_entropy: true\n"
    ),
    when=lambda run: (
        LIGER in listed_plugins(run) and run.config.get(_TOKEN_SCALING) and not run.config.get(_FUSED_LOSS)
    ),
    key=_TOKEN_SCALING,
    message=f"{_TOKEN_SCALING} is an option of {_FUSED_LOSS}, which is off: Axolotl stops",
    fix=_fuse_or_unscale,
)
