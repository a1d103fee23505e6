"""Axolotl's own rules about quantised weights: QLoRA, QAT, quantised experts."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import lists_plugin
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import Fix, RunSpec, Severity
from vramwise.units import gib
from vramwise.variants import changes

# the oldest version whose kernels are known
_KERNELS_ADD = (0, 18)


@rule(
    id="lora-4bit-not-qlora",
    still_runs=True,
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nload_in_4bit: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\n",
    beyond_trainer="Axolotl accepts it, quantises nothing and upcasts every base linear to fp32 (verified in a run).",
)
def lora_4bit_not_qlora(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`adapter: lora` with `load_in_4bit` quantises nothing and loads the base in fp32.

    Axolotl builds a 4-bit configuration only for `adapter: qlora`. With `adapter: lora` the weights are loaded
    unquantised and then prepared as if they were quantised, which upcasts every base linear to fp32: 4 bytes per
    parameter instead of about 0.5, eight times as much as intended. Under ZeRO 3, under FSDP with
    cpu_ram_efficient_loading and with LoftQ that preparation is skipped, and the base stays in 16 bit: four times as
    much as intended.

    With LoRA kernels, which Axolotl turns on by default, such a run fails in its first backward pass. The kernels add
    products of bf16 gradients and fp32 weights in place (`self and mat2 must have the same dtype`). This was observed
    on 0.19, and the same line is in 0.18, 0.20 and 0.21.

    Use `adapter: qlora`. A checkpoint that is already quantised (bnb-4bit) and `quantize_moe_experts` are not affected.
    """
    if run.adapter.kind != "lora" or run.config.get("load_in_4bit") is not True or _quantised_otherwise(run):
        return
    cost = (
        "upcasts the base to fp32, 4 bytes"
        if run.precision.weights_dtype == "fp32"
        else "keeps the base in 16 bit, 2 bytes"
    )
    stops = (
        run.adapter.lora_kernels
        and run.precision.weights_dtype == "fp32"
        and run.target.stack.parts("axolotl") >= _KERNELS_ADD
    )
    ends = ", and its LoRA kernels fail in the first backward (self and mat2 must have the same dtype)" if stops else ""
    yield Hit(
        f"adapter: lora with load_in_4bit: true quantises nothing: Axolotl {cost} per parameter instead of "
        f"about 0.5{ends}",
        "adapter",
        change=changes.quantize_base(run),
    )


def _quantised_otherwise(run: RunSpec) -> bool:
    """The checkpoint is itself quantised, or its experts are."""
    prequantised = "bnb-4bit" in str(run.base_model).lower()
    return prequantised or run.loading.quantization is not None or bool(run.config.get("quantize_moe_experts"))


_AWARE = "nvfp4_merge_aware"
_AWARE_START = "nvfp4_merge_aware_start_step"
_FUSED = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
_PLUGIN = "plugins:\n  - axolotl.integrations.kernels.KernelsPlugin\n"


@rule(
    id="nvfp4-merge-aware-misused",
    bad=f"{_PLUGIN}adapter: lora\nexpert_backend: sonicmoe\nnvfp4_merge_aware: true\nlora_qkv_kernel: true\n",
    good=f"{_PLUGIN}adapter: lora\nexpert_backend: sonicmoe\nnvfp4_merge_aware: true\nlora_qkv_kernel: false\n",
    options="--with axolotl==0.19.0",
)
def nvfp4_merge_aware_misused(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`nvfp4_merge_aware` without the settings that it needs.

    This option trains the adapter on the grid of an NVFP4 base, so that merging loses nothing. It needs the sonicmoe
    expert backend, `adapter: lora`, and LoRA layers that are really called, which the fused `lora_*_kernel`s bypass.
    Otherwise Axolotl refuses the file. It also refuses `nvfp4_merge_aware_start_step` without the option, or with a
    value that is neither a step nor a fraction between 0 and 1. Since 0.21 it turns the option off itself if an adapter
    is missing, and refuses only ScatterMoE and such a value.
    """
    if lists_plugin(run, "KernelsPlugin"):
        if schema_of(run).since("0.21.0"):
            yield from _since_021(run)
        elif run.config.get(_AWARE):
            yield from _merge_aware_on(run)
        elif run.config.get(_AWARE_START) is not None:
            yield Hit(f"Axolotl refuses {_AWARE_START} without {_AWARE}: true", _AWARE_START)


def _since_021(run: RunSpec) -> Iterator[Hit]:
    """The cases that Axolotl still refuses: in the others it warns or turns the option off."""
    scatter = run.config.get("use_scattermoe") or str(run.config.get("expert_backend")).lower() == "scattermoe"
    if run.config.get(_AWARE) and scatter:
        yield Hit(f"Axolotl refuses {_AWARE} with ScatterMoE: it needs sonicmoe", _AWARE)
    if run.config.get(_AWARE) is False or (run.config.get(_AWARE) and run.adapter.kind not in ("lora", "multilora")):
        return
    yield from _start_step(run)


def _merge_aware_on(run: RunSpec) -> Iterator[Hit]:
    sonic = run.config.get("use_sonicmoe") or str(run.config.get("expert_backend")).lower() == "sonicmoe"
    if not sonic:
        yield Hit(f"Axolotl refuses {_AWARE} without expert_backend: sonicmoe", _AWARE)
    if run.adapter.kind != "lora":
        yield Hit(f"Axolotl refuses {_AWARE} without adapter: lora (found: {run.adapter.kind or 'none'})", _AWARE)
    fused = [key for key in _FUSED if run.config.get(key) is True]
    if fused:
        message = f"Axolotl refuses {_AWARE} with {', '.join(fused)}: fused kernels bypass the LoRA layers"
        yield Hit(message, fused[0], safe("Turn the kernels off", *(set_key(key, False) for key in fused)))
    yield from _start_step(run)


def _start_step(run: RunSpec) -> Iterator[Hit]:
    start = run.config.get(_AWARE_START)
    if start is not None and not _is_step_or_fraction(start):
        message = f"Axolotl refuses {_AWARE_START} {start}: it must be a step (0, 1, 2…) or a fraction between 0 and 1"
        yield Hit(message, _AWARE_START)


def _is_step_or_fraction(start: object) -> bool:
    if isinstance(start, bool):
        return False
    return 0 < start < 1 if isinstance(start, float) else isinstance(start, int) and start >= 0


# nf4 with double quantisation: half a byte per weight, a byte per 64 weights, four bytes per 256 of those blocks
_PACKED = 0.5 + 1 / 64 + 4 / (64 * 256)
_WORTH_SAYING = 2**30


@rule(
    id="qlora-experts-unquantised",
    severity=Severity.WARNING,
    costs_memory=True,
    needs={"memory"},
    bad=(
        "base_model: Qwen/Qwen3-30B-A3B\nadapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\n"
        "lora_target_modules: [q_proj, v_proj]\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\n"
        "gradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
    ),
    good=(
        "base_model: Qwen/Qwen3-30B-A3B\nadapter: qlora\nload_in_4bit: true\nquantize_moe_experts: true\nlora_r: 16\n"
        "lora_alpha: 32\nlora_target_modules: [q_proj, v_proj]\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\n"
        "gradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
    ),
    options="--gpu h100",
    beyond_trainer="Axolotl leaves the experts unquantised without warning.",
)
def qlora_experts_unquantised(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`load_in_4bit` does not quantise the experts of a mixture-of-experts model.

    bitsandbytes quantises linear layers. transformers 5 stores the experts of a layer as one 3-D parameter per
    projection, which is not a linear layer, so they are loaded in 16 bit. They are most of the model: in Qwen3-30B-A3B,
    54 GiB of experts instead of 14 GiB. PEFT's preparation for training on a quantised base then casts every
    unquantised weight to fp32, including the experts, and nothing casts them back: 108 GiB.

    Set `quantize_moe_experts: true` to quantise them while they load. It needs target modules by name (Axolotl refuses
    `lora_target_linear` with it).
    """
    if memory is None or run.loading.quantization not in ("4bit", "8bit") or memory.experts_bytes < _WORTH_SAYING:
        return
    weights = memory.experts_bytes / 2
    packed = weights * (_PACKED if run.loading.quantization == "4bit" else 1.0)
    version = run.target.stack.releases.get("transformers")
    shown = "transformers 5" if version is None else f"transformers {version.version}"
    yield Hit(
        field="quantization",
        message=(
            f"{gib(memory.experts_bytes)} of experts are not quantised ({shown} stores them as 3-D parameters), and "
            "PEFT casts them to fp32, which doubles that; quantize_moe_experts: true saves at least "
            f"{gib(int(memory.experts_bytes - packed))}"
        ),
    )


@rule(
    id="prequantized-with-bitsandbytes",
    bad="base_model: openai/gpt-oss-20b\nadapter: lora\nmodel_quantization_config: Mxfp4Config\nload_in_8bit: true\n",
    good="base_model: openai/gpt-oss-20b\nadapter: lora\nmodel_quantization_config: Mxfp4Config\nload_in_8bit: false\n",
)
def prequantized_with_bitsandbytes(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A checkpoint's own quantisation together with bitsandbytes.

    `model_quantization_config` loads a checkpoint in the format it was stored in (mxfp4, fp8). `load_in_4bit` and
    `load_in_8bit` quantise plain weights with bitsandbytes while they load. A weight cannot have both, so Axolotl
    refuses them together.

    Remove `load_in_4bit` or `load_in_8bit`, and use `adapter: lora` (qlora always means bitsandbytes 4 bit).
    """
    method = run.config.get("model_quantization_config")
    for key in ("load_in_4bit", "load_in_8bit"):
        if method and run.config.get(key):
            # qlora means bitsandbytes and is refused without it
            edits = [set_key("adapter", "lora")] if run.adapter.kind == "qlora" else []
            yield Hit(
                f"Axolotl refuses {key} with model_quantization_config: {method}: they are two ways to quantise a "
                "weight",
                key,
                unsafe("Keep the checkpoint's own format", set_key(key, False), *edits),
            )


@rule(
    id="qat-with-adapter-or-quantization",
    also=(Severity.WARNING,),
    bad="qat:\n  weight_dtype: int4\n  group_size: 32\nadapter: qlora\nload_in_4bit: true\n",
    good="qat:\n  weight_dtype: int4\n  group_size: 32\n",
)
def qat_with_adapter_or_quantization(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Quantisation-aware training together with a quantised base or an adapter.

    QAT trains full 16-bit weights while rounding them on the fly as they will be quantised later. It needs those
    weights, so Axolotl refuses `qat` with `load_in_4bit`, `load_in_8bit` or a `peft` block. It also refuses ternary
    weights with activations other than int8, and up to 0.20 a torch before 2.6. It is meant to refuse `adapter` too,
    but checks the wrong key: the base is then frozen, and only the adapter learns to compensate for the rounding.

    Use QAT for a full fine-tune, or an adapter without `qat`.
    """
    config, kind, torch = run.config, run.adapter.kind, run.target.torch
    if not config.get("qat"):
        return
    without = unsafe("Train without QAT", delete_key("qat"))
    for key in ("load_in_4bit", "load_in_8bit"):
        if config.get(key):
            fix = unsafe("Load the base in 16 bit", set_key(key, False))
            yield Hit(f"Axolotl refuses qat with {key}: QAT trains full 16-bit weights", key, fix)
    if config.get("peft"):
        yield Hit("Axolotl refuses qat with a peft block", "peft", without)
    elif kind:
        message = f"qat with adapter: {kind}: the weights that QAT rounds are frozen, and only the adapter is trained"
        yield Hit(message, "qat", without, severity=Severity.WARNING)
    if config.get("qat.weight_dtype") == "ternary" and config.get("qat.activation_dtype", "int8") != "int8":
        key = "qat.activation_dtype"
        fix = unsafe("Use int8 activations", set_key(key, "int8"))
        yield Hit("Axolotl refuses ternary QAT with activations other than int8", key, fix)
    if torch < (2, 6) and not schema_of(run).since("0.21.0"):
        yield Hit(f"Axolotl refuses qat on torch {torch[0]}.{torch[1]}: it needs torch 2.6 or newer", "qat")


@rule(
    id="qlora-quantization-mismatch",
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_8bit: true\nload_in_4bit: false\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_8bit: false\nload_in_4bit: true\n",
)
def qlora_quantization_mismatch(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`adapter: qlora` without a 4-bit base.

    QLoRA in Axolotl means a base in 4-bit nf4 by bitsandbytes. Axolotl refuses `qlora` with `load_in_8bit`, with
    `gptq`, or without `load_in_4bit: true`.

    For a 4-bit base set `load_in_4bit: true` (about 0.5 byte per parameter). For an 8-bit or a GPTQ base use
    `adapter: lora`.
    """
    if run.adapter.kind != "qlora" or run.config.get("merge_lora"):
        return
    title, four_bits = "Load the base in 4 bit", insert_key("load_in_4bit", True, beside="adapter")
    if run.config.get("load_in_8bit"):
        message = "Axolotl refuses adapter: qlora with load_in_8bit: qlora needs a 4-bit base"
        yield Hit(message, "load_in_8bit", unsafe(title, set_key("load_in_8bit", False), four_bits))
    if run.config.get("gptq"):
        message = "Axolotl refuses adapter: qlora on a GPTQ base: qlora quantises with bitsandbytes"
        yield Hit(message, "gptq", unsafe("Train lora on the GPTQ base", set_key("adapter", "lora")))
    if not any(run.config.get(key) for key in ("load_in_4bit", "load_in_8bit", "gptq")):
        message = "Axolotl refuses adapter: qlora without load_in_4bit: true: nothing would be quantised"
        yield Hit(message, "load_in_4bit", unsafe(title, four_bits))


@rule(
    id="quantize-moe-experts-misused",
    bad="adapter: qlora\nload_in_4bit: true\nquantize_moe_experts: true\n"
    "lora_target_linear: true\nlora_target_modules: [q_proj, v_proj]\n",
    good="adapter: qlora\nload_in_4bit: true\nquantize_moe_experts: true\nlora_target_modules: [q_proj, v_proj]\n",
)
def quantize_moe_experts_misused(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`quantize_moe_experts` without the settings that it needs.

    transformers stores experts as one 3-D parameter, which bitsandbytes does not quantise, so a "4-bit" mixture of
    experts stays mostly in 16 bit. `quantize_moe_experts` quantises those weights while they load. Axolotl refuses it
    without a `lora` or `qlora` adapter, without `load_in_4bit` or `load_in_8bit`, with `lora_target_linear` (experts
    are not linear layers: use `lora_target_parameters`), and on anything but CUDA.
    """
    key, config, gpu = "quantize_moe_experts", run.config, run.target.gpu
    if not config.get(key):
        return
    if config.get("lora_target_linear"):
        yield Hit(
            f"Axolotl refuses {key} with lora_target_linear: experts are not linear layers; name the targets instead",
            "lora_target_linear",
            _named_targets(run),
        )
    if run.adapter.kind not in ("lora", "qlora"):
        found = run.adapter.kind or "unset"
        yield Hit(f"Axolotl refuses {key} with adapter {found}: quantised experts need lora or qlora", key)
    if not (config.get("load_in_4bit") or config.get("load_in_8bit")):
        yield Hit(f"Axolotl refuses {key} without load_in_4bit or load_in_8bit", key)
    if gpu is not None and gpu.vendor == "amd":
        yield Hit(f"Axolotl refuses {key} on {gpu.name}: it works only on CUDA", key)


def _named_targets(run: RunSpec) -> Fix | None:
    """Turn lora_target_linear off; None if there are no other targets, so nothing would be trained."""
    others = run.config.get("lora_target_modules") or run.config.get("lora_target_parameters")
    return unsafe("Keep only the named targets", set_key("lora_target_linear", False)) if others else None


@rule(
    id="quantized-without-adapter",
    bad="base_model: meta-llama/Llama-3.2-1B\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\n",
    beyond_trainer="gptq without an adapter passes Axolotl's check; transformers' trainer then refuses the model.",
)
def quantized_without_adapter(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The base model is loaded quantised, but no adapter is trained on it.

    Quantised weights have no gradient, so they cannot be trained. Axolotl refuses `load_in_4bit` or `load_in_8bit`
    without an adapter. It accepts a GPTQ checkpoint without one, but transformers' trainer refuses the model once it is
    loaded.

    Add an adapter (`qlora` for 4 bit, `lora` for 8 bit or GPTQ), or load in 16 bit for a full fine-tune, which needs
    about 8 bytes per parameter with Adam in bf16 instead of 0.5 to 1.
    """
    if run.adapter.kind or run.config.get("inference"):
        return
    for key, adapter in (("load_in_4bit", "qlora"), ("load_in_8bit", "lora"), ("gptq", "lora")):
        if not run.config.get(key):
            continue
        if run.adapter.lora_r or key == "gptq":
            fix = unsafe(f"Train an adapter: {adapter}", insert_key("adapter", adapter, beside=key))
        else:
            fix = unsafe("Fine-tune all weights in 16 bit", set_key(key, False))
        who = "transformers" if key == "gptq" else "Axolotl"
        yield Hit(f"{who} refuses {key}: true without an adapter: quantised weights cannot be trained", key, fix)
