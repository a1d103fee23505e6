"""Axolotl's own rules of one condition and one sentence: quantization."""

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
        return (
            f"{key} with model_quantization_config: {method}: a weight is quantised one way, Axolotl refuses the file"
        )

    return Case(when=key, key=key, message=message, fix=fix)


prequantized_with_bitsandbytes = _row(
    id="prequantized-with-bitsandbytes",
    text="""A checkpoint's own quantisation and bitsandbytes at once.

    `model_quantization_config` loads a checkpoint in the format it was stored in (mxfp4, fp8); `load_in_4bit` and
    `load_in_8bit` quantise plain weights with bitsandbytes while they load. A weight can have one of the two: Axolotl
    refuses both together.

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
    weights: Axolotl refuses `qat` with `load_in_4bit`, `load_in_8bit` or a `peft` block, with ternary weights and other
    activations than int8, and on torch before 2.6. With `adapter` alone it means to refuse and looks at the wrong key:
    the base is then frozen, and only the adapter learns around the rounding.

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
                message=f"qat with {key}: QAT trains full 16-bit weights, Axolotl refuses the file",
                fix=unsafe("Load the base in 16 bit", set_key(key, False)),
            )
            for key in ("load_in_4bit", "load_in_8bit")
        ),
        Case(when="peft", key="peft", message="qat with a peft block: Axolotl refuses the file", fix=_NO_QAT),
        Case(
            when=lambda run: run.adapter.kind and not run.config.get("peft"),
            severity=Severity.WARNING,
            key="qat",
            message=lambda run: (
                f"qat with adapter: {run.adapter.kind}: the weights that QAT rounds are frozen, only the adapter is "
                "trained"
            ),
            fix=_NO_QAT,
        ),
        Case(
            when=lambda run: (
                run.config.get("qat.weight_dtype") == "ternary"
                and run.config.get("qat.activation_dtype", "int8") != "int8"
            ),
            key="qat.activation_dtype",
            message="ternary QAT takes int8 activations only: Axolotl refuses the file",
            fix=unsafe("Use int8 activations", set_key("qat.activation_dtype", "int8")),
        ),
        Case(
            when=lambda run: run.target.torch < (2, 6) and not schema_of(run).since("0.21.0"),
            key="qat",
            message=lambda run: (
                f"qat needs torch 2.6, and the target has {run.target.torch[0]}.{run.target.torch[1]}: Axolotl "
                "refuses the file"
            ),
        ),
    ),
)


_FOUR_BITS = insert_key("load_in_4bit", True, beside="adapter")


qlora_quantization_mismatch = _row(
    id="qlora-quantization-mismatch",
    text="""`adapter: qlora` without the 4-bit base it stands for.

    QLoRA in Axolotl means a base in 4-bit nf4 by bitsandbytes. It refuses `qlora` with `load_in_8bit`, with `gptq`, or
    without `load_in_4bit: true`.

    For 4 bit write `load_in_4bit: true` (about 0.5 byte a parameter). For an 8-bit or a GPTQ base use `adapter: lora`.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_8bit: true\nload_in_4bit: false\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_8bit: false\nload_in_4bit: true\n",
    when=lambda run: run.adapter.kind == "qlora" and not run.config.get("merge_lora"),
    cases=(
        Case(
            when="load_in_8bit",
            key="load_in_8bit",
            message="adapter: qlora with load_in_8bit: qlora means a 4-bit base, and Axolotl refuses the file",
            fix=unsafe("Load the base in 4 bit", set_key("load_in_8bit", False), _FOUR_BITS),
        ),
        Case(
            when="gptq",
            key="gptq",
            message="adapter: qlora on a GPTQ base: qlora quantises by bitsandbytes, and Axolotl refuses the file",
            fix=unsafe("Train lora on the GPTQ base", set_key("adapter", "lora")),
        ),
        Case(
            when=lambda run: not any(run.config.get(key) for key in ("load_in_4bit", "load_in_8bit", "gptq")),
            key="load_in_4bit",
            message=(
                "adapter: qlora without load_in_4bit: true: nothing would be quantised, and Axolotl refuses the file"
            ),
            fix=unsafe("Load the base in 4 bit", _FOUR_BITS),
        ),
    ),
)


_EXPERTS = "quantize_moe_experts"


def _amd_card(run: RunSpec) -> str:
    gpu = run.target.gpu
    return gpu.name if gpu is not None and gpu.vendor == "amd" else ""


def _named_targets(run: RunSpec) -> Fix | None:
    """None without other targets: nothing would be left to train."""
    others = run.config.get("lora_target_modules") or run.config.get("lora_target_parameters")
    return unsafe("Keep the targets named", set_key("lora_target_linear", False)) if others else None


quantize_moe_experts_misused = _row(
    id="quantize-moe-experts-misused",
    text="""`quantize_moe_experts` without what it needs.

    transformers holds experts as one 3-D parameter that bitsandbytes passes over, so a "4-bit" mixture of experts stays
    mostly in 16 bit; `quantize_moe_experts` quantises those weights while they load. Axolotl refuses it without a
    `lora` or `qlora` adapter, without `load_in_4bit` or `load_in_8bit`, with `lora_target_linear` (experts are no
    linears: use `lora_target_parameters`), and on anything but CUDA.
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
                f"{_EXPERTS} with lora_target_linear: experts are no linears, Axolotl refuses the file; name the "
                "targets instead"
            ),
            fix=_named_targets,
        ),
        Case(
            when=lambda run: run.adapter.kind not in ("lora", "qlora"),
            message=lambda run: (
                f"{_EXPERTS} with adapter {run.adapter.kind or 'unset'}: quantised experts need adapter lora or qlora, "
                "Axolotl refuses the file"
            ),
        ),
        Case(
            when=lambda run: not (run.config.get("load_in_4bit") or run.config.get("load_in_8bit")),
            message=f"{_EXPERTS} without load_in_4bit or load_in_8bit: Axolotl refuses the file",
        ),
        Case(
            when=_amd_card,
            message=lambda run: (
                f"{_EXPERTS} works on CUDA only, and the target is {_amd_card(run)}: Axolotl refuses the file"
            ),
        ),
    ),
)


def _untrainable(key: str, adapter: str) -> Case:
    def fix(run: RunSpec) -> Fix:
        if run.adapter.lora_r or key == "gptq":
            return unsafe(f"Train an adapter: {adapter}", insert_key("adapter", adapter, beside=key))
        return unsafe("Fine-tune all weights in 16 bit", set_key(key, False))

    refuses = "transformers' trainer refuses the loaded model" if key == "gptq" else "Axolotl refuses the file"
    message = f"{key}: true without an adapter: quantised weights cannot be trained, and {refuses}"
    return Case(when=key, key=key, message=message, fix=fix)


quantized_without_adapter = _row(
    id="quantized-without-adapter",
    text="""The base model is loaded quantised, but no adapter is trained on it.

    Quantised weights cannot be trained: they have no gradient. Axolotl refuses `load_in_4bit` or `load_in_8bit` without
    an adapter; a GPTQ checkpoint without one passes and is refused by the trainer once it is loaded.

    Add an adapter (`qlora` for 4 bit, `lora` for 8 bit or GPTQ), or load in 16 bit for a full fine-tune, which needs
    about 8 bytes a parameter with Adam in bf16 instead of 0.5 to 1.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\n",
    beyond_trainer="gptq without an adapter passes Axolotl's check; transformers' trainer then refuses the model.",
    when=lambda run: not run.adapter.kind and not run.config.get("inference"),
    cases=(_untrainable("load_in_4bit", "qlora"), _untrainable("load_in_8bit", "lora"), _untrainable("gptq", "lora")),
)
