"""Axolotl's own rules about number formats: fp8, bf16, and modules kept in fp32."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import Fix, RunSpec, Severity, join_key

_FLASH = "flash_attention_2"
# Models without attention: the attention backend changes nothing for them.
_NO_ATTENTION = re.compile(r"(?<![a-z])(falcon[-_]?)?(mamba|rwkv)", re.IGNORECASE)


@rule(
    id="fp32-embeddings",
    explains={"flash-needs-half"},
    severity=Severity.WARNING,
    costs_memory=True,
    moot_when_embedded=True,
    bad="base_model: meta-llama/Llama-3.2-1B\nbf16: true\nattn_implementation: sdpa\n",
    good="base_model: meta-llama/Llama-3.2-1B\nbf16: true\nattn_implementation: flash_attention_2\n",
    beyond_trainer="Axolotl does this without warning (verified in a run).",
)
def fp32_embeddings(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A full fine-tune with sdpa or eager attention keeps embeddings, head and norms in fp32.

    Axolotl first upcasts norms, embeddings and lm_head to fp32. It casts them back to bf16 only with an adapter, under
    FSDP, with cut cross entropy, or with an attention backend other than sdpa and eager (unset means sdpa). In a plain
    full fine-tune they stay fp32, and so do their gradients and optimizer states: 16 bytes per parameter with Adam
    instead of 8. With a large vocabulary that is much of the model: the embeddings of Llama-3.2-1B, 128256 × 2048, take
    3.9 GiB instead of 2.0.

    Use flash attention if the card supports it (sm_80 and newer) and the model has attention, or use the cut cross
    entropy plugin. DeepSpeed casts the whole model itself, so the rule reports nothing there.
    """
    if (
        run.adapter.kind
        or not run.precision.fp32_embeddings
        or run.precision.weights_dtype != "bf16"
        or run.sharding.kind not in ("none", "ddp")
    ):
        return
    if not run.base_model:
        return  # no training config
    yield Hit(
        field="attn_implementation",
        message=(
            f"full fine-tune {_under(run)}: Axolotl keeps embeddings, lm_head and norms in fp32, "
            "with their gradients and optimizer states: 16 bytes per parameter with Adam instead of 8"
        ),
        fix=_use_flash_attention(run),
    )


def _attends(run: RunSpec) -> bool:
    return not _NO_ATTENTION.search(f"{run.base_model} {run.config.get('model_type', '')}")


def _under(run: RunSpec) -> str:
    return f"with {run.kernels.attn_implementation} attention" if _attends(run) else "of a model without attention"


def _use_flash_attention(run: RunSpec) -> Fix | None:
    gpu = run.target.gpu
    before_ampere = gpu is not None and gpu.capability is not None and gpu.capability < (8, 0)
    if before_ampere or not _attends(run):
        return None  # FlashAttention 2 starts with Ampere
    flags = [key for key in ("sdp_attention", "eager_attention") if key in run.config]
    edits = (insert_key("attn_implementation", _FLASH, beside=flags[0] if flags else "base_model"),)
    return unsafe(f"Use {_FLASH}", *edits, *(delete_key(key) for key in flags))


@rule(
    id="fp8-length-not-divisible",
    explains={"fp8-alignment"},
    severity=Severity.WARNING,
    bad="fp8: true\ntorch_compile: true\nmicro_batch_size: 1\nsequence_len: 2048\npad_to_sequence_len: false\n",
    good="fp8: true\ntorch_compile: true\nmicro_batch_size: 1\nsequence_len: 2048\npad_to_sequence_len: true\n",
    beyond_trainer="Axolotl does not check lengths; torch's fp8 product needs dimensions divisible by 16.",
)
def fp8_length_not_divisible(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """fp8 with batches whose token count is not divisible by 16.

    The gradient of a weight is a matrix product summed over all tokens of the micro-batch, and torch's fp8 product
    needs dimensions divisible by 16 (by 32 in the mxfp8 formats). A micro-batch has rows × width tokens, and padding
    decides the width. The run stops at the first batch whose token count is not divisible.

    Axolotl's own padding, to sequence_len or to multiples of 64, always works. `pad_to_sequence_len: false` or an odd
    `pad_to_multiple_of` does not. The recipe `rowwise_with_gw_hp` computes that gradient in bf16 and is not affected.
    """
    recipe = str(run.config.get("fp8_config.recipe", "tensorwise"))
    if run.precision.compute != "fp8" or recipe == "rowwise_with_gw_hp":
        return
    divisor = 32 if recipe.startswith("mxfp8") else 16
    rows = 1 if run.shapes.packing_rows == "one" else run.batch.micro_batch_size
    if rows * run.shapes.pad_multiple % divisor == 0:
        return
    widths = f"multiples of {run.shapes.pad_multiple}" if run.shapes.pad_multiple > 1 else "any length"
    yield Hit(
        f"fp8 needs token counts divisible by {divisor}, but a micro-batch is {rows} "
        f"{'row' if rows == 1 else 'rows'} of {widths}: the first batch that is not divisible stops the run",
        "pad_to_sequence_len" if run.shapes.pad_multiple == 1 else "pad_to_multiple_of",
        _pad_to_divisible_widths(run),
    )


def _pad_to_divisible_widths(run: RunSpec) -> Fix | None:
    edits = []
    if run.config.get("pad_to_sequence_len") is False:
        edits.append(set_key("pad_to_sequence_len", True))
    if run.config.get("pad_to_multiple_of"):
        edits.append(set_key("pad_to_multiple_of", 64))
    return unsafe("Pad to divisible widths", *edits) if edits else None


_RECOMPUTED = "fsdp_config.activation_checkpointing"
_SKIP_UPCAST = "embeddings_skip_upcast"

fp8_checkpointing_slow = row(
    id="fp8-checkpointing-slow",
    severity=Severity.WARNING,
    text="""fp8 with FSDP's activation checkpointing can be slower than bf16.

    Checkpointing runs each block's forward pass twice. In fp8 this also repeats the scaling and casting of every input
    and weight. The repeated casts can cost more time than the fp8 products save.

    Turn FSDP's activation checkpointing off if the activations fit, or train in bf16.
    """,
    bad="fp8: true\ntorch_compile: true\nfsdp_version: 2\nfsdp_config:\n  activation_checkpointing: true\n",
    good="fp8: true\ntorch_compile: true\nfsdp_version: 2\nfsdp_config:\n  activation_checkpointing: false\n",
    when=lambda run: run.precision.compute == "fp8" and run.config.get(_RECOMPUTED) is True,
    key=_RECOMPUTED,
    message=(
        "fp8 with FSDP activation_checkpointing may be slower than bf16: it casts every block's inputs and weights "
        "twice"
    ),
    fix=lambda run: unsafe(
        "Keep activations: activation_checkpointing: false", set_key(join_key(run.config.path(_RECOMPUTED)), False)
    ),
)


fp8_lora_kernels = row(
    id="fp8-lora-kernels",
    severity=Severity.WARNING,
    figured="fast numbers",
    text="""fp8 has no effect on layers that Axolotl's LoRA kernels have taken over.

    The kernels read the base weights themselves and multiply in bf16, so torchao's fp8 layers are never called. Axolotl
    turns the kernels on by itself for LoRA without dropout, also with `fp8: true`. The other layers pay for the casts.

    Remove `fp8`. LoRA's base weights are frozen, and its small products gain nothing from fp8.
    """,
    bad="adapter: lora\nlora_target_linear: true\nfp8: true\ntorch_compile: true\nlora_mlp_kernel: true\n",
    good="adapter: lora\nlora_target_linear: true\nbf16: true\ntorch_compile: true\nlora_mlp_kernel: true\n",
    beyond_trainer="Axolotl accepts both without warning (read in its source).",
    when=lambda run: run.precision.compute == "fp8" and any(one != "embedding" for one in run.adapter.fused_lora),
    key="fp8",
    message="fp8 has no effect on layers with Axolotl's LoRA kernels: they multiply the base weights in bf16",
    fix=unsafe("Train in bf16: remove fp8", delete_key("fp8")),
)


def _upcast_anyway(run: RunSpec) -> str | None:
    if schema_of(run).since("0.20.0"):
        return "without a quantised base" if run.loading.quantization is None else None
    if run.sharding.is_fsdp:
        return "under FSDP"
    return None if run.config.get("load_in_4bit") else "without load_in_4bit"


skip_upcast_ignored = row(
    id="skip-upcast-ignored",
    severity=Severity.INFO,
    text="""`embeddings_skip_upcast` has no effect here.

    While preparing a model, Axolotl holds embeddings and head in fp32 for a moment. With a large vocabulary that can be
    the peak of loading. `embeddings_skip_upcast` keeps them in 16 bit: up to 0.19 only with `load_in_4bit` and without
    FSDP, since 0.20 with every quantised base, where it is on by default. In a full fine-tune it has no effect.
    """,
    bad="adapter: lora\nembeddings_skip_upcast: true\n",
    good="adapter: qlora\nload_in_4bit: true\nembeddings_skip_upcast: true\n",
    beyond_trainer="Axolotl reads the key only if the base is quantised, and ignores it otherwise without warning.",
    when=lambda run: run.config.get(_SKIP_UPCAST) and _upcast_anyway(run),
    key=_SKIP_UPCAST,
    message=lambda run: f"{_SKIP_UPCAST} has no effect {_upcast_anyway(run)}",
    fix=safe(f"Remove {_SKIP_UPCAST}, which has no effect", delete_key(_SKIP_UPCAST)),
)

_GATHER = "fp8_enable_fsdp_float8_all_gather"


@rule(
    id="fp8-options-without-fp8",
    also=(Severity.WARNING,),
    bad="base_model: meta-llama/Llama-3.2-1B\nfp8_config:\n  recipe: rowwise\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfp8: true\nfp8_config:\n  recipe: rowwise\n",
)
def fp8_options_without_fp8(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """fp8 options are set, but fp8 is off.

    Axolotl refuses `fp8_config` without `fp8: true`. It accepts `fp8_enable_fsdp_float8_all_gather` without
    `fp8: true`, but the key has no effect: training and all-gathers run in bf16.

    Add `fp8: true`, or remove the options.
    """
    if run.config.get("fp8"):
        return
    if run.config.get("fp8_config") is not None:
        fix = unsafe("Train without fp8: remove fp8_config", delete_key("fp8_config"))
        yield Hit("Axolotl refuses fp8_config without fp8: true", "fp8_config", fix)
    if run.config.get(_GATHER):
        message = f"{_GATHER} has no effect while fp8 is not true: weights are gathered in 16 bit"
        fix = safe(f"Remove {_GATHER}, which has no effect", delete_key(_GATHER))
        yield Hit(message, _GATHER, fix, severity=Severity.WARNING)


@rule(
    id="fp8-all-gather-without-fsdp2",
    bad="fp8: true\ntorch_compile: true\nfp8_enable_fsdp_float8_all_gather: true\n",
    good="fp8: true\ntorch_compile: true\nfp8_enable_fsdp_float8_all_gather: true\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
)
def fp8_all_gather_without_fsdp2(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """fp8 all-gather is on without FSDP2 and tensorwise scaling, which it needs.

    `fp8_enable_fsdp_float8_all_gather` sends sharded weights as fp8, half the traffic of bf16. Only FSDP2 keeps
    parameters separate so that it can cast them before sending, and only the `tensorwise` recipe has one scale for a
    whole tensor. Otherwise Axolotl refuses the file.

    Add an `fsdp_config` (up to 0.19 with `fsdp_version: 2` at the top level beside it) and leave `fp8_config.recipe` at
    tensorwise, or remove the key.
    """
    if not run.config.get(_GATHER):
        return
    version = run.config.get("fsdp_version", "not set")
    recipe = run.config.get("fp8_config.recipe", "tensorwise")
    refused = f"Axolotl refuses {_GATHER} with"
    fix = unsafe("Gather weights in 16 bit: remove the key", delete_key(_GATHER))
    if schema_of(run).since("0.20.0"):
        if not run.config.get("fsdp_config"):
            yield Hit(f"{refused}out fsdp_config: it needs FSDP2", _GATHER, fix)
    elif str(version) != "2":
        yield Hit(f"{refused} fsdp_version {version}: it needs FSDP2", _GATHER, fix)
    elif run.config.document.values.get("fsdp_version") is None:
        message = f"{refused} fsdp_version 2 inside fsdp_config: its check looks only at the top level"
        edit = insert_key("fsdp_version", 2, beside="fsdp_config")
        yield Hit(message, _GATHER, safe("Set fsdp_version: 2 at the top level", edit))
    if recipe != "tensorwise":
        message = f"{refused} fp8_config.recipe {recipe}: it needs tensorwise scaling"
        yield Hit(message, "fp8_config.recipe", fix)


def _fp16_outright(run: RunSpec) -> Fix | None:
    if not run.adapter.kind:
        return None
    beside = "bf16" if "bf16" in run.config else "adapter"
    edits = (insert_key("bf16", False, beside=beside), insert_key("fp16", True, beside="bf16"))
    return unsafe("Set fp16: true and bf16: false", *edits)


bf16_auto_emulated = row(
    id="bf16-auto-emulated",
    severity=Severity.INFO,
    needs={"gpu"},
    text="""`bf16: auto` on a card without bf16 may use emulated bf16.

    `auto` is meant to fall back to fp16 on cards older than Ampere. Axolotl relies on torch's `is_bf16_supported()`,
    which also returns true if bf16 is only emulated. A T4 or V100 can therefore run in bf16, very slowly and without
    warning.

    With an adapter, set `fp16: true` and `bf16: false` to be sure. A full fine-tune has no good 16-bit choice on such a
    card: fp16 weights fail with the gradient scaler (see `fp16-full-finetune`).
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nbf16: auto\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nbf16: false\nfp16: true\n",
    options="--gpu t4",
    beyond_trainer="Axolotl relies on torch's test, which counts emulated bf16 as support.",
    when=lambda run: (
        run.target.gpu is not None
        and not run.target.gpu.bf16
        and run.base_model
        and run.config.get("bf16", "auto" if "bf16" not in run.config else False) == "auto"
        and not run.config.get("fp16")
        and not run.config.get("fp8")
    ),
    key="bf16",
    message=lambda run: (
        f"bf16: auto on {run.target.gpu and run.target.gpu.name} is meant to become fp16, but torch counts "
        "emulated bf16 as support: Axolotl may use that, which is very slow"
    ),
    fix=_fp16_outright,
)
