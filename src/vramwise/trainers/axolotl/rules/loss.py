"""Axolotl's own rules about kernels for the loss and the MLP: Liger, cut cross-entropy, tiled MLP."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import CUT_CROSS_ENTROPY, LIGER, listed_plugins
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import Fix, RunSpec, Severity

# Sorted by how much memory a kernel saves, the most first.
_KERNELS = ("cut_cross_entropy", "liger_fused_linear_cross_entropy", "liger_cross_entropy", "chunked_cross_entropy")


@rule(
    id="loss-kernels-conflict",
    also=(Severity.WARNING,),
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_cross_entropy: true\nliger_fused_linear_cross_entropy: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_fused_linear_cross_entropy: true\n"
    ),
    beyond_trainer="Axolotl checks only keys in the file; CutCrossEntropyPlugin turns its loss on without a key.",
)
def loss_kernels_conflict(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """More than one replacement for the cross-entropy loss is on.

    Cut cross entropy, Liger's fused linear cross entropy, Liger's cross entropy and chunked cross entropy each replace
    the loss, so Axolotl refuses more than one. Listing CutCrossEntropyPlugin turns cut cross entropy on without its
    key, and Axolotl does not notice a Liger loss beside it. Liger's fused loss and cut cross entropy both patch the
    model's forward pass, and the plugin listed last wins. Keep the one you want.
    """
    written = [key for key in _KERNELS if run.config.get(key)]
    plugins = listed_plugins(run)
    if len(written) > 1:
        yield Hit(
            f"Axolotl refuses more than one loss kernel, and {len(written)} are on: {', '.join(written)}",
            written[1],
            unsafe(f"Keep {written[0]}", *map(delete_key, written[1:])),
        )
    elif CUT_CROSS_ENTROPY in plugins and written == ["chunked_cross_entropy"]:
        yield Hit(
            "Axolotl refuses chunked_cross_entropy with CutCrossEntropyPlugin, even if that is turned off",
            "chunked_cross_entropy",
            unsafe("Remove chunked_cross_entropy", delete_key("chunked_cross_entropy")),
        )
    elif {CUT_CROSS_ENTROPY, LIGER} <= set(plugins) and written and "cut_cross_entropy" not in run.config:
        yield Hit(
            f"{written[0]} with CutCrossEntropyPlugin, which is on by default: {_outcome(written[0], plugins)}",
            written[0],
            unsafe("Turn cut cross entropy off", insert_key("cut_cross_entropy", False, beside=written[0])),
            severity=Severity.WARNING,
        )


def _outcome(key: str, plugins: tuple[str, ...]) -> str:
    if key == "liger_cross_entropy":  # replaces the loss function, which cut cross entropy no longer calls
        return "cut cross entropy computes the loss, and Liger's is never called"
    winner = "Liger" if plugins.index(LIGER) > plugins.index(CUT_CROSS_ENTROPY) else "cut cross entropy"
    return f"both patch the model's forward pass, and {winner}, listed last, wins"


_FUSED_LOSS = "liger_fused_linear_cross_entropy"
_TOKEN_SCALING = "liger_use_token_scaling"
_ORIGINAL_MLP = "tiled_mlp_use_original_mlp"

grpo_liger_sequence_parallel = row(
    id="grpo-liger-sequence-parallel",
    text="""GRPO with Liger's loss and a sequence split over GPUs.

    Liger's fused GRPO loss needs the whole sequence of every sample, but context parallelism gives each GPU only a part
    of it. Axolotl refuses the combination.

    Choose one. Liger's loss avoids storing the logits (tokens × vocabulary). Context parallelism divides activations by
    the number of GPUs.
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
        f"Axolotl refuses trl.use_liger_loss with context_parallel_size {run.config.get('context_parallel_size')}: "
        "Liger's GRPO loss needs whole sequences"
    ),
    fix=unsafe("Compute the loss without Liger", set_key("trl.use_liger_loss", False)),
)


def _tile_original(run: RunSpec) -> Fix:
    edit = insert_key(_ORIGINAL_MLP, True, beside="tiled_mlp")
    unset = _ORIGINAL_MLP not in run.config
    return safe(f"Set {_ORIGINAL_MLP}: true, the default", edit) if unset else unsafe("Tile the existing MLP", edit)


liger_tiled_mlp_conflict = row(
    id="liger-tiled-mlp-conflict",
    text="""Liger's MLP kernel and the tiled MLP are both on.

    Both replace the model's MLP. They work together only if tiling wraps the existing MLP
    (`tiled_mlp_use_original_mlp: true`). That is the default, but Axolotl checks before it fills in defaults, so it
    stops unless the key is in the file.
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
    message=f"Axolotl refuses tiled_mlp with liger_glu_activation unless the file sets {_ORIGINAL_MLP}: true",
    fix=_tile_original,
)


def _fuse_or_unscale(run: RunSpec) -> Fix:
    if run.kernels.loss_kernel != "stock" or run.sharding.tensor_parallel_size > 1:  # the kernel would be refused
        return unsafe(f"Remove {_TOKEN_SCALING}", delete_key(_TOKEN_SCALING))
    return unsafe(f"Turn {_FUSED_LOSS} on", insert_key(_FUSED_LOSS, True, beside=_TOKEN_SCALING))


liger_token_scaling_without_flce = row(
    id="liger-token-scaling-without-flce",
    text="""`liger_use_token_scaling` without Liger's fused linear cross entropy.

    Token scaling is an option of that loss kernel, so Axolotl stops if the kernel is off. Turn the kernel on, or remove
    the option.
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
    message=f"Axolotl refuses {_TOKEN_SCALING} while {_FUSED_LOSS} is off",
    fix=_fuse_or_unscale,
)


@rule(
    id="cut-cross-entropy-dtype",
    also=(Severity.WARNING,),
    bad="base_model: meta-llama/Llama-3.2-1B\nplugins:\n"
    "  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\ncut_cross_entropy: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nplugins:\n"
    "  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\ncut_cross_entropy: true\nbf16: auto\n",
    beyond_trainer="Axolotl checks only if `cut_cross_entropy` is set; if the plugin turns it on, fp32 passes.",
)
def cut_cross_entropy_dtype(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Cut cross entropy without `bf16` or `fp16` in the file.

    Its backward pass runs only in half precision. Axolotl checks this before it fills in defaults: with
    `cut_cross_entropy: true` the file must set `bf16` or `fp16`, although unset means `bf16: auto`. Setting
    `bf16: auto` gives the same run and passes. If `cut_cross_entropy` is unset, the plugin turns itself on and Axolotl
    does not check, not even a run in fp32.
    """
    if CUT_CROSS_ENTROPY not in listed_plugins(run):
        return
    written = "bf16" in run.config
    title = "Train in bf16: bf16: auto"
    if run.config.get("cut_cross_entropy") and not run.config.get("bf16") and not run.config.get("fp16"):
        unset = "bf16 is unset (unset means auto, but Axolotl checks it as off)"
        why = "neither bf16 nor fp16 is on" if written else unset
        edit = insert_key("bf16", "auto", beside="cut_cross_entropy")
        yield Hit(
            f"Axolotl refuses cut_cross_entropy: true without half precision: {why}",
            "cut_cross_entropy",
            unsafe(title, edit) if written else safe("Set bf16: auto, the default", edit),
        )
    elif run.kernels.loss_kernel == "cut" and run.precision.compute == "fp32":
        message = "cut cross entropy is on through its plugin, but its backward needs bf16 or fp16, not fp32"
        fix = unsafe(title, insert_key("bf16", "auto", beside="plugins"))
        yield Hit(message, "bf16", fix, severity=Severity.WARNING)


@rule(
    id="dpo-liger-loss-unsupported",
    also=(Severity.WARNING,),
    bad="rl: dpo\nadapter: lora\ndpo_use_liger_kernel: true\ndpo_loss_type: [ipo]\n",
    good="rl: dpo\nadapter: lora\ndpo_use_liger_kernel: true\ndpo_loss_type: [sigmoid]\n",
    options="--with axolotl==0.20.0",
)
def dpo_liger_loss_unsupported(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Liger's DPO loss with a loss type that it does not support.

    `dpo_use_liger_kernel` computes head and loss in chunks, so the complete logits of both answers are never in memory.
    It does not support the IPO loss, which Axolotl refuses. It supports one loss type at a time: only the first entry
    of `dpo_loss_type` is used, and the others are dropped with a warning.

    Choose another loss type, or turn the kernel off and allow memory for the logits. Since Axolotl 0.21 (TRL 1.14) the
    kernel returns log-probabilities, which support every loss type, and the rule reports nothing.
    """
    key = "dpo_use_liger_kernel"
    if not run.config.get(key) or schema_of(run).since("0.21.0"):
        return
    written = run.config.get("dpo_loss_type", ())
    losses = list(written) if isinstance(written, list | tuple) else [written]
    if run.objective.rl == "ipo" or losses[:1] == ["ipo"]:
        fix = safe("Compute the loss without Liger", delete_key(key))
        yield Hit(f"Axolotl refuses {key} with the ipo loss, which Liger does not support", key, fix)
    elif len(losses) > 1:
        ignored = ", ".join(map(str, losses[1:]))
        message = f"{key} uses only {losses[0]}, the first of dpo_loss_type; {ignored} is ignored"
        fix = unsafe("Compute every loss without Liger", delete_key(key))
        yield Hit(message, "dpo_loss_type", fix, severity=Severity.WARNING)


@rule(
    id="liger-tensor-parallel",
    bad="base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
    "liger_rms_norm: true\ntensor_parallel_size: 2\n",
    good="base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
    "liger_glu_activation: true\ntensor_parallel_size: 2\n",
    options="--gpus 2",
)
def liger_tensor_parallel(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Liger's RMS norm or fused loss with tensor parallelism.

    Tensor parallelism splits weights and activations across GPUs as distributed tensors, but these two kernels need
    plain tensors, so Axolotl stops. Without them the model's own norm and loss are used: the result is the same, with
    more memory.
    """
    size = run.sharding.tensor_parallel_size
    for key in ("liger_rms_norm", _FUSED_LOSS) if size > 1 and LIGER in listed_plugins(run) else ():
        if run.config.get(key):
            fix = unsafe(f"Remove {key}", delete_key(key))
            yield Hit(f"Axolotl refuses {key} with tensor_parallel_size {size}", key, fix)
