"""Axolotl rules with one condition and one message: quantization."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import delete_key, insert_key, set_key, unsafe
from vramwise.rules.rows import Case, row
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import Fix, RunSpec, Severity

_row = partial(row, topic="method")


def _quantised_twice(key: str) -> Case:
    def fix(run: RunSpec) -> Fix:
        # qlora means bitsandbytes and is refused without it
        edits = [set_key("adapter", "lora")] if run.adapter.kind == "qlora" else []
        return unsafe("Keep the checkpoint's own format", set_key(key, False), *edits)

    def message(run: RunSpec) -> str:
        method = run.config.get("model_quantization_config")
        return f"Axolotl refuses {key} with model_quantization_config: {method}: they are two ways to quantise a weight"

    return Case(when=key, key=key, message=message, fix=fix)


prequantized_with_bitsandbytes = _row(
    id="prequantized-with-bitsandbytes",
    text="""A checkpoint's own quantisation together with bitsandbytes.

    `model_quantization_config` loads a checkpoint in the format it was stored in (mxfp4, fp8). `load_in_4bit` and
    `load_in_8bit` quantise plain weights with bitsandbytes while they load. A weight cannot have both, so Axolotl
    refuses them together.

    Remove `load_in_4bit` or `load_in_8bit`, and use `adapter: lora` (qlora always means bitsandbytes 4 bit).
    """,
    bad="base_model: openai/gpt-oss-20b\nadapter: lora\nmodel_quantization_config: Mxfp4Config\nload_in_8bit: true\n",
    good="base_model: openai/gpt-oss-20b\nadapter: lora\nmodel_quantization_config: Mxfp4Config\nload_in_8bit: false\n",
    when="model_quantization_config",
    cases=tuple(map(_quantised_twice, ("load_in_4bit", "load_in_8bit"))),
)


_NO_QAT = unsafe("Train without QAT", delete_key("qat"))


qat_with_adapter_or_quantization = _row(
    id="qat-with-adapter-or-quantization",
    also=(Severity.WARNING,),
    text="""Quantisation-aware training together with a quantised base or an adapter.

    QAT trains full 16-bit weights while rounding them on the fly as they will be quantised later. It needs those
    weights, so Axolotl refuses `qat` with `load_in_4bit`, `load_in_8bit` or a `peft` block. It also refuses ternary
    weights with activations other than int8, and up to 0.20 a torch before 2.6. It is meant to refuse `adapter` too,
    but checks the wrong key: the base is then frozen, and only the adapter learns to compensate for the rounding.

    Use QAT for a full fine-tune, or an adapter without `qat`.
    """,
    bad="qat:\n  weight_dtype: int4\n  group_size: 32\nadapter: qlora\nload_in_4bit: true\n",
    good="qat:\n  weight_dtype: int4\n  group_size: 32\n",
    when="qat",
    cases=(
        *(
            Case(
                when=key,
                key=key,
                message=f"Axolotl refuses qat with {key}: QAT trains full 16-bit weights",
                fix=unsafe("Load the base in 16 bit", set_key(key, False)),
            )
            for key in ("load_in_4bit", "load_in_8bit")
        ),
        Case(when="peft", key="peft", message="Axolotl refuses qat with a peft block", fix=_NO_QAT),
        Case(
            when=lambda run: run.adapter.kind and not run.config.get("peft"),
            severity=Severity.WARNING,
            key="qat",
            message=lambda run: (
                f"qat with adapter: {run.adapter.kind}: the weights that QAT rounds are frozen, and only the adapter "
                "is trained"
            ),
            fix=_NO_QAT,
        ),
        Case(
            when=lambda run: (
                run.config.get("qat.weight_dtype") == "ternary"
                and run.config.get("qat.activation_dtype", "int8") != "int8"
            ),
            key="qat.activation_dtype",
            message="Axolotl refuses ternary QAT with activations other than int8",
            fix=unsafe("Use int8 activations", set_key("qat.activation_dtype", "int8")),
        ),
        Case(
            when=lambda run: run.target.torch < (2, 6) and not schema_of(run).since("0.21.0"),
            key="qat",
            message=lambda run: (
                f"Axolotl refuses qat on torch {run.target.torch[0]}.{run.target.torch[1]}: it needs torch 2.6 or newer"
            ),
        ),
    ),
)


_FOUR_BITS = insert_key("load_in_4bit", True, beside="adapter")


qlora_quantization_mismatch = _row(
    id="qlora-quantization-mismatch",
    text="""`adapter: qlora` without a 4-bit base.

    QLoRA in Axolotl means a base in 4-bit nf4 by bitsandbytes. Axolotl refuses `qlora` with `load_in_8bit`, with
    `gptq`, or without `load_in_4bit: true`.

    For a 4-bit base set `load_in_4bit: true` (about 0.5 byte per parameter). For an 8-bit or a GPTQ base use
    `adapter: lora`.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_8bit: true\nload_in_4bit: false\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_8bit: false\nload_in_4bit: true\n",
    when=lambda run: run.adapter.kind == "qlora" and not run.config.get("merge_lora"),
    cases=(
        Case(
            when="load_in_8bit",
            key="load_in_8bit",
            message="Axolotl refuses adapter: qlora with load_in_8bit: qlora needs a 4-bit base",
            fix=unsafe("Load the base in 4 bit", set_key("load_in_8bit", False), _FOUR_BITS),
        ),
        Case(
            when="gptq",
            key="gptq",
            message="Axolotl refuses adapter: qlora on a GPTQ base: qlora quantises with bitsandbytes",
            fix=unsafe("Train lora on the GPTQ base", set_key("adapter", "lora")),
        ),
        Case(
            when=lambda run: not any(run.config.get(key) for key in ("load_in_4bit", "load_in_8bit", "gptq")),
            key="load_in_4bit",
            message="Axolotl refuses adapter: qlora without load_in_4bit: true: nothing would be quantised",
            fix=unsafe("Load the base in 4 bit", _FOUR_BITS),
        ),
    ),
)


_EXPERTS = "quantize_moe_experts"


def _amd_card(run: RunSpec) -> str:
    gpu = run.target.gpu
    return gpu.name if gpu is not None and gpu.vendor == "amd" else ""


def _named_targets(run: RunSpec) -> Fix | None:
    """Turn lora_target_linear off; None if there are no other targets, so nothing would be trained."""
    others = run.config.get("lora_target_modules") or run.config.get("lora_target_parameters")
    return unsafe("Keep only the named targets", set_key("lora_target_linear", False)) if others else None


quantize_moe_experts_misused = _row(
    id="quantize-moe-experts-misused",
    text="""`quantize_moe_experts` without the settings that it needs.

    transformers stores experts as one 3-D parameter, which bitsandbytes does not quantise, so a "4-bit" mixture of
    experts stays mostly in 16 bit. `quantize_moe_experts` quantises those weights while they load. Axolotl refuses it
    without a `lora` or `qlora` adapter, without `load_in_4bit` or `load_in_8bit`, with `lora_target_linear` (experts
    are not linear layers: use `lora_target_parameters`), and on anything but CUDA.
    """,
    bad="adapter: qlora\nload_in_4bit: true\nquantize_moe_experts: true\n"
    "lora_target_linear: true\nlora_target_modules: [q_proj, v_proj]\n",
    good="adapter: qlora\nload_in_4bit: true\nquantize_moe_experts: true\nlora_target_modules: [q_proj, v_proj]\n",
    when=_EXPERTS,
    key=_EXPERTS,
    cases=(
        Case(
            when="lora_target_linear",
            key="lora_target_linear",
            message=(
                f"Axolotl refuses {_EXPERTS} with lora_target_linear: experts are not linear layers; name the targets "
                "instead"
            ),
            fix=_named_targets,
        ),
        Case(
            when=lambda run: run.adapter.kind not in ("lora", "qlora"),
            message=lambda run: (
                f"Axolotl refuses {_EXPERTS} with adapter {run.adapter.kind or 'unset'}: quantised experts need lora "
                "or qlora"
            ),
        ),
        Case(
            when=lambda run: not (run.config.get("load_in_4bit") or run.config.get("load_in_8bit")),
            message=f"Axolotl refuses {_EXPERTS} without load_in_4bit or load_in_8bit",
        ),
        Case(
            when=_amd_card,
            message=lambda run: f"Axolotl refuses {_EXPERTS} on {_amd_card(run)}: it works only on CUDA",
        ),
    ),
)


def _untrainable(key: str, adapter: str) -> Case:
    def fix(run: RunSpec) -> Fix:
        if run.adapter.lora_r or key == "gptq":
            return unsafe(f"Train an adapter: {adapter}", insert_key("adapter", adapter, beside=key))
        return unsafe("Fine-tune all weights in 16 bit", set_key(key, False))

    who = "transformers" if key == "gptq" else "Axolotl"
    message = f"{who} refuses {key}: true without an adapter: quantised weights cannot be trained"
    return Case(when=key, key=key, message=message, fix=fix)


quantized_without_adapter = _row(
    id="quantized-without-adapter",
    text="""The base model is loaded quantised, but no adapter is trained on it.

    Quantised weights have no gradient, so they cannot be trained. Axolotl refuses `load_in_4bit` or `load_in_8bit`
    without an adapter. It accepts a GPTQ checkpoint without one, but transformers' trainer refuses the model once it is
    loaded.

    Add an adapter (`qlora` for 4 bit, `lora` for 8 bit or GPTQ), or load in 16 bit for a full fine-tune, which needs
    about 8 bytes per parameter with Adam in bf16 instead of 0.5 to 1.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\n",
    beyond_trainer="gptq without an adapter passes Axolotl's check; transformers' trainer then refuses the model.",
    when=lambda run: not run.adapter.kind and not run.config.get("inference"),
    cases=(_untrainable("load_in_4bit", "qlora"), _untrainable("load_in_8bit", "lora"), _untrainable("gptq", "lora")),
)
