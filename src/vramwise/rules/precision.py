"""Rules for every trainer about number formats: bf16, fp16, fp32 and fp8, and which card has them."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.facts.attention import uses_flash_library
from vramwise.rules.base import Hit, as_written, rule
from vramwise.rules.rows import row
from vramwise.timeline import MemoryReport
from vramwise.types import GpuSpec, RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="bf16-left-off",
    explains={"fp16-scaler-bf16-weights", "fp16-overflow"},
    severity=Severity.INFO,
    needs={"gpu"},
    options="--gpu rtx-4090",
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nfp16: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nbf16: auto\n",
)
def bf16_left_off(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The card supports bf16, but the run uses fp16.

    fp16 and bf16 take the same memory and run at the same speed. fp16 reaches only to 65504, so it needs loss scaling,
    skips steps that overflow and can diverge on models that were trained in bf16; bf16 has the range of fp32 and needs
    none of that. Keep fp16 only for a model that was made in fp16, or for a file that must also work on older cards
    with a trainer that cannot choose by card.
    """
    gpu = run.target.gpu
    if gpu is None or not gpu.bf16 or run.precision.compute != "fp16":
        return
    yield Hit(
        field="precision",
        message=(
            f"{gpu.name} supports bf16, but the run uses fp16: same memory, but a smaller range, loss scaling and "
            "skipped steps"
        ),
        change=changes.train_in_bf16(run),
    )


@rule(
    id="bf16-unsupported",
    explains={"bf16-unsupported"},
    severity=Severity.WARNING,
    needs={"gpu"},
    options="--gpu t4",
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nbf16: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nbf16: auto\n",
)
def bf16_unsupported(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """bf16 is on, but the card does not support it.

    NVIDIA cards support bf16 from compute capability 8.0 (Ampere) on. On older cards, `bf16: true` is either rejected
    or emulated: every matrix product is converted through fp32, tensor cores stay idle and training is very slow. The
    trainer only warns.

    Set `fp16: true` and `bf16: false`, which does not depend on torch's own test. A trainer that chooses by card uses
    bf16 if supported and fp16 otherwise, so the same file works on both.
    """
    gpu = run.target.gpu
    if gpu is None or gpu.bf16:
        return
    # The weights alone can be bf16, too: then another key than the precision decided, or only the checkpoint.
    field = next((name for name in ("precision", "weights_dtype") if run.value(name) == "bf16"), None)
    if field is None or (field == "weights_dtype" and run.origins[field].kind == "assumed"):
        return
    yield Hit(
        field=field,
        message=f"{_bf16(run, field)} on {_card(gpu)}, which has no bf16: it is rejected, or emulated and very slow",
        change=changes.let_card_choose(run),
    )


def _bf16(run: RunSpec, field: str) -> str:
    """Return the key as written; without a key, say that bf16 is on anyway."""
    written, key = as_written(run, field), run.origins[field].key
    if written is None and key is None:
        return "bf16 is on by default" if field == "precision" else "bf16 weights"
    return written or f"bf16 in {key}"


def _card(gpu: GpuSpec) -> str:
    return (
        gpu.name if gpu.capability is None else f"{gpu.name} (sm_{gpu.capability[0]}{gpu.capability[1]}, needs sm_80)"
    )


_UNSCALE = "`Attempting to unscale FP16 gradients`"
_MISMATCH = "`expected mat1 and mat2 to have the same dtype`"
_NO_KERNEL = "`_amp_foreach_non_finite_check_and_unscale_cuda not implemented for 'BFloat16'`"
# DeepSpeed scales the loss itself; FSDP1 has its own scaler that accepts fp16 gradients.
_PLAIN_SCALER = ("none", "ddp", "fsdp2")


@rule(
    id="fp16-full-finetune",
    explains={"fp16-trainable-weights", "mixed-operands"},
    also=(Severity.WARNING,),
    bad="base_model: meta-llama/Llama-3.2-1B\nfp16: true\nsample_packing: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nbf16: auto\nsample_packing: true\n",
    beyond_trainer=(
        "The trainer warns only if bf16 is set to false, packing is on and flash attention is not used; torch's "
        "scaler rejects fp16 gradients with or without packing (verified by running it)."
    ),
)
def fp16_full_finetune(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """fp16 trains weights of 16 bits, which the gradient scaler rejects.

    With `fp16: true` and no adapter, the weights are loaded and trained in fp16, so their gradients are fp16 too.
    Mixed precision in fp16 needs the gradient scaler, and torch's scaler does not accept fp16 gradients: the first
    optimizer step stops with `Attempting to unscale FP16 gradients`. fp16 without autocast has no scaler, but under
    sdpa or eager attention embeddings and norms stay in fp32 while linear layers are fp16, and the first forward pass
    stops with `expected mat1 and mat2 to have the same dtype`. The trainer itself warns only of packing without flash
    attention, and only if bf16 is set to false.

    Weights in bf16 are no better: `fp16: true` scales their gradients, and the scaler has no kernel for bf16. The same
    goes for adapters in the type of a base of 16 bits, and for copies of modules that are trained whole beside them.
    If the type is only assumed (that of the checkpoint), the finding is a warning.

    A trainer that lets the card choose uses fp16 on a card without bf16, with the same result; torch counts emulated
    bf16 as support, so the trainer may run emulated bf16 there instead, which works but is very slow.

    Use bf16 on a card that supports it, or a LoRA adapter (adapters stay in fp32, which the scaler accepts). Flash
    attention casts the fp32 embeddings back, which fixes only the second error.
    """
    trained = trained_half(run)
    if trained is None or run.precision.compute != "fp16" or not _plain_scaler(run):
        return
    message = _fp16_message(run, trained)
    if message is None:
        return
    by_card = run.precision.autocast and run.precision.precision_by_card
    unsure = by_card or run.origins["weights_dtype"].kind == "assumed"
    yield Hit(
        field="precision",
        message=message,
        change=None if by_card else changes.train_in_bf16(run),
        severity=Severity.WARNING if unsure else Severity.ERROR,
    )


def trained_half(run: RunSpec) -> str | None:
    """Return the dtype of trained weights if it is one of 16 bits."""
    if run.precision.weights_dtype == "fp32" or run.loading.trains_in_fp32:
        return None
    adapter, prepared = run.adapter, run.loading.quantised_base_prepared == "all"
    saved = adapter.lora_modules_to_save and not run.precision.fp32_embeddings and not prepared
    if adapter.kind is None or adapter.adapters_as_base or (saved and not adapter.half_adapters):
        return run.precision.weights_dtype
    return None


def _plain_scaler(run: RunSpec) -> bool:
    """Return whether torch's own scaler meets these weights: accelerate's FSDP 2 casts trained ones to fp32."""
    cast = run.sharding.kind == "fsdp2" and run.sharding.fsdp_widens != "nothing"
    return run.sharding.kind in _PLAIN_SCALER and not cast


def _fp16_message(run: RunSpec, trained: str) -> str | None:
    if not run.precision.autocast:
        full = run.precision.fp32_embeddings and trained == "fp16" and run.adapter.kind is None
        return _without_scaler(run) if full else None
    if trained == "bf16" or run.adapter.kind is not None:
        return _wrong_type(run, trained)
    if not run.precision.precision_by_card:
        return _under_scaler(run)
    return _from_card(run) if run.base_model else None


def _wrong_type(run: RunSpec, trained: str) -> str:
    parts = "the weights" if run.adapter.kind is None else "the adapter's trained weights"
    stop = _UNSCALE if trained == "fp16" else _NO_KERNEL
    assumed = run.origins["weights_dtype"].kind == "assumed"
    known = f"{parts} are {'probably ' if assumed else ''}{trained}"
    return (
        f"{_fp16(run)}: true scales gradients, and {known}: the first step stops with {stop}; use bf16: true, or load "
        "the weights in fp32"
    )


def _fp16(run: RunSpec) -> str:
    return run.origins["precision"].key or run.keys["precision"]


def _under_scaler(run: RunSpec) -> str:
    attention = run.kernels.attn_implementation
    if run.shapes.sample_packing and not uses_flash_library(attention):
        return (
            f"fp16 full fine-tune with {run.keys['sample_packing']} under {attention}, no flash attention: it stops "
            f"with {_UNSCALE} or {_MISMATCH}; use bf16 or a LoRA adapter (flash attention avoids only the second)"
        )
    return (
        f"{_fp16(run)}: true without an adapter trains fp16 weights with the gradient scaler: the first step stops "
        f"with {_UNSCALE} (or {_MISMATCH}); use bf16 or a LoRA adapter"
    )


def _without_scaler(run: RunSpec) -> str:
    return (
        f"{_fp16(run)}: true in a full fine-tune under {run.kernels.attn_implementation} leaves embeddings and norms "
        f"in fp32 while linear layers are fp16: the first forward pass stops with {_MISMATCH}; use bf16, a LoRA "
        "adapter or "
        "flash attention"
    )


def _from_card(run: RunSpec) -> str:
    card = run.target.gpu.name if run.target.gpu else "this card"
    return (
        f"{run.keys['precision']}: auto means fp16 on {card}, and a full fine-tune in fp16 stops with "
        f"{_UNSCALE} (or {_MISMATCH}); torch also counts emulated bf16, so {run.trainer_title} may use that instead, "
        "which is very slow; use a LoRA adapter or a card with bf16"
    )


@rule(
    id="fp32-weights",
    severity=Severity.WARNING,
    bad="base_model: meta-llama/Llama-3.2-1B\nbf16: false\nfp16: false\n",
    good="base_model: meta-llama/Llama-3.2-1B\nbf16: auto\n",
    beyond_trainer="The trainer loads the model in fp32 and mentions bf16 only on a card that supports it.",
)
def fp32_weights(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Neither bf16 nor fp16 is on, so everything is in fp32.

    Weights, activations and, in a full fine-tune, gradients and optimizer states take 4 bytes per number instead of 2:
    twice the memory everywhere, and matrix products without 16-bit tensor cores. If bf16 is a trainer's default,
    `bf16: false` switches it off.

    Train in bf16, or in fp16 on a card without it. Keep fp32 only on purpose, for example to rule out precision as the
    cause of a bad loss.
    """
    wide = run.precision.weights_dtype == "fp32" or (run.loading.trains_in_fp32 and run.adapter.kind is None)
    if run.precision.compute != "fp32" or not wide:
        return
    if run.origins["weights_dtype"].key is not None:
        return  # another key than the precision made them fp32, which has its own rule
    if run.loading.quantization:
        fact = "neither bf16 nor fp16 is on: everything but the quantised base is stored and computed in fp32"
    else:
        fact = "neither bf16 nor fp16 is on: everything is in fp32, 4 bytes per parameter instead of 2"
    yield Hit(
        field="precision",
        message=f"{fact}, activations too",
        change=changes.let_card_choose(run),
    )


@rule(
    id="fp8-unsupported-card",
    also=(Severity.WARNING,),
    needs={"gpu"},
    options="--gpu rtx-4090",
    bad="base_model: meta-llama/Llama-3.2-1B\nfp8: true\ntorch_compile: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfp8: true\ntorch_compile: true\n",
    good_options="--gpu h100",
)
def fp8_unsupported_card(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """fp8 training on a card that the trainer does not accept for fp8.

    fp8 is accepted from compute capability 9.0 (Hopper) on; the trainer stops on anything older. Ada cards (RTX
    40, L4, L40S; 8.9) have fp8 units but are rejected too; Ampere and older have none.

    Train in bf16 on this card, without fp8.
    """
    gpu = run.target.gpu
    if run.precision.compute != "fp8" or gpu is None:
        return
    change = changes.train_in_bf16(run) or changes.let_card_choose(run)
    asked = gpu.vendor != "amd" and run.precision.refuses_fp8_below is not None
    if not asked and not gpu.fp8:
        message = (
            f"{_fp8(run)} on {gpu.name}, which has no fp8: {run.trainer_title} accepts it, and the first fp8 matrix "
            "product fails"
        )
        yield Hit(field="precision", message=message, change=change, severity=Severity.WARNING)
    elif asked and gpu.capability is not None and gpu.capability < (run.precision.refuses_fp8_below or (0, 0)):
        yield Hit(field="precision", message=_fp8_refused(run, gpu, gpu.capability), change=change)


def _fp8(run: RunSpec) -> str:
    """Return fp8 as the file requests it: by a key of that name, or by a launcher's setting."""
    return "fp8: true" if run.keys["precision"] == "fp8" else "fp8"


def _fp8_refused(run: RunSpec, gpu: GpuSpec, capability: tuple[int, int]) -> str:
    card = f"{gpu.name} (sm_{capability[0]}{capability[1]})"
    has = "has fp8 units, but" if gpu.fp8 else "has no fp8;"
    return (
        f"{_fp8(run)} on {card}: the card {has} {run.trainer_title} accepts fp8 only on sm_90 and newer, and rejects "
        "the file"
    )


@rule(
    id="fp8-without-compile",
    severity=Severity.WARNING,
    figured="fast numbers",
    bad="base_model: meta-llama/Llama-3.2-1B\nfp8: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfp8: true\ntorch_compile: true\n",
)
def fp8_without_compile(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """fp8 without torch.compile is slower than bf16.

    In fp8, every linear layer first measures and casts its input, weight and gradient. Run separately, those extra
    passes over memory cost more than the faster matrix product gains; torch.compile fuses them with other operations.
    On an H200, a full fine-tune ran at 0.65 times the speed of bf16 without it, and at 1.37 times with it.
    Weights stay stored in bf16, so fp8 saves no weight memory either: without compilation there is no benefit.

    Set `torch_compile: true`, or drop fp8. `torch_compile: auto` counts where the torch version allows it.
    """
    if run.precision.compute != "fp8" or run.kernels.torch_compile:
        return
    said = "fp8: true" if run.keys["precision"] == "fp8" else "fp8"
    message = (
        f"{said} without {run.keys['torch_compile']}: the casts around every linear layer are not fused, so fp8 is "
        "slower than bf16 (0.65 times the speed in a measured run)"
    )
    yield Hit(field="precision", message=message, change=changes.compile_model(run))


fp8_nan = row(
    id="fp8-torchao-nan",
    severity=Severity.WARNING,
    text="""Compiled fp8 with torch 2.14 or newer and torchao before 0.18 can make gradients NaN.

    Triton miscompiles a minimum or maximum in the backward pass that Inductor writes for torchao's casts. torchao 0.18
    replaces those two operations (read in its source); earlier releases do not.

    Upgrade torchao to 0.18. State its version with `--with torchao==…` or `--stack FILE`: without one, nothing is
    reported.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\nfp8: true\ntorch_compile: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfp8: true\n",
    options="--with torchao==0.17.0 --torch 2.14",
    beyond_trainer="No trainer compares the two versions.",
    when=lambda run: (
        run.precision.compute == "fp8"
        and run.kernels.torch_compile
        and run.target.torch >= (2, 14)
        and run.target.stack.older_than("torchao", "0.18")
    ),
    field="precision",
    message=lambda run: (
        f"compiled fp8 with torchao {run.target.stack.releases['torchao'].meant} and torch 2.14 or newer can make "
        "gradients NaN: torchao 0.18 works around the miscompiled kernel"
    ),
)
