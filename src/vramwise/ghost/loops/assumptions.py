"""The assumptions of predictions, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.ghost.loops.batches import Widths, largest
from vramwise.ghost.optimizers import is_known
from vramwise.models.compiled import compiled_program
from vramwise.models.families import family_of
from vramwise.types import ModelSpec, RunSpec
from vramwise.types.actions import action


def assumptions(
    run: RunSpec,
    model: ModelSpec,
    widths: Widths | None,
    eval_widths: Widths | None,
) -> tuple[str, ...]:
    """Return the prediction's assumptions in sentences."""
    found = []
    if widths is None:
        shape = largest(run)
        found.append(
            f"without data, every micro-batch is assumed to be {shape.rows} × {shape.width} tokens, all rows full"
        )
    if run.evaluation.evaluates and eval_widths is None:
        shape = largest(run, evaluation=True)
        found.append(f"without data, every evaluation batch is assumed to be {shape.rows} × {shape.width} tokens")
    if model.family_assumed:
        found.append(f"unknown model_type '{model.model_type}': treated as llama-like; {model.untraced}".rstrip("; "))
    if model.trace is not None:
        found.append(
            f"{model.model_type}: traced from {model.trace.source}, not measured; for models that vramwise also "
            "describes by hand, traces of 62 measured runs were all within 2% (reserved memory)"
        )
    family = family_of(model)
    if not family.measured and model.trace is None:
        found.append(f"the prediction for {model.model_type} models has not been compared with a measured run")
    if family.coarse:
        found.append(f"{model.model_type}: {family.coarse}")
    if model.taken_for:
        found.append(model.taken_for)
    if not is_known(run.optimizer.name):
        found.append(f"optimizer '{run.optimizer.name}' is not modelled: treated as fused AdamW")
    if run.kernels.attn_implementation not in ("eager", "sdpa") and "flash" not in run.kernels.attn_implementation:
        found.append(f"attn_implementation '{run.kernels.attn_implementation}' is predicted as flash attention")
    if run.kernels.loss_kernel == "liger_fused_linear" and (
        run.adapter.kind is None or "lm_head" in run.adapter.lora_modules_to_save
    ):
        origin = run.origins.get("liger_chunks_in_place")
        taken = "liger-kernel's version" if origin is None else origin.why
        found.append(f"{taken} is assumed; versions differ in the memory of a trained head's gradient")
    if model.left_out:
        found.append(f"not modelled: {model.left_out}")
    if run.kernels.torch_compile and compiled_program(run, model) is None:
        found.append("torch_compile: predicted as eager; compiled runs usually need less")
    elif run.kernels.torch_compile:
        found.append(
            "torch_compile: buffers and kernels are those of the code of torch 2.13's Inductor for such a model; "
            "evaluation is predicted uncompiled"
        )
    found += _preference_assumptions(run)
    if run.savings.tiled_mlp and "mlp" in run.adapter.fused_lora:
        found.append("tiled_mlp has no effect on layers that use the LoRA MLP kernel")
    elif run.savings.tiled_mlp and model.num_experts:
        found.append("tiled_mlp is not modelled for experts: they run on whole sequences")
    if run.precision.compute == "fp8":
        found.append("fp8: linear layers are converted and cast as accelerate 1.15 and torchao 0.18 do")
    if run.loading.quantization == "8bit" and run.loading.int8_outliers and not model.random_weights:
        found.append("8-bit products are assumed to find a handful of outlier columns: not measured on trained weights")
    if run.savings.activation_offloading == "stream" and run.savings.recompute and run.adapter.kind is None:
        found.append(
            "offloaded inputs of recomputed layers are assumed to be released at once; a host that runs ahead of the "
            "card keeps them reserved for longer (up to 2.4 % in five measured runs)"
        )
    if run.loading.quantization == "gptq":
        found.append("gptq weights are predicted as 4-bit nf4")
    return tuple(found)


def _preference_assumptions(run: RunSpec) -> Iterator[str]:
    """Yield what is unknown about the data of preference and reward training, and what is not modelled."""
    if run.objective.rl and run.objective.kind == "tokens":
        yield (
            f"rl: {run.objective.rl} is not modelled: predicted as supervised fine-tuning, without its additional "
            "memory"
        )
    if run.objective.kind == "kto" and run.objective.log_probs == "whole":
        yield "kto: mismatched completions are assumed to be as long as the others, with half of the rows of each label"
    elif run.objective.kind == "kto":
        yield (
            "kto: logging copies the logits of completions; they are assumed to fill their rows, all of one label in "
            "the worst batch"
        )
    if run.objective.spare_model:
        yield "a second model is loaded and freed before the first step: its memory is assumed to be reused"
    if run.objective.reference != "none" and run.sharding.kind != "none":
        yield f"the reference model is assumed to gather weights like the policy under {run.sharding.kind}"
    if run.objective.log_probs in ("chunked", "tiled") and run.objective.kind in ("dpo", "kto", "grpo"):
        yield "tiled log-probabilities are predicted as in TRL 1.14; earlier versions use Liger's own loss"
    if run.objective.kind == "grpo":
        yield from _generation(run)


def _generation(run: RunSpec) -> Iterator[str]:
    yield (
        f"every completion reaches {run.objective.completion_len} tokens, and prompts fill the rest of the longest "
        f"row ({action('prompt lengths')})"
    )
    gpu = run.target.gpu
    if run.objective.engine == "elsewhere":
        yield "vLLM is assumed to run on another card"
    elif run.objective.engine == "beside" and gpu is None:
        yield f"vLLM takes {run.objective.engine_share:.0%} of the card; no card is given, so it is not counted"
    elif run.objective.engine == "beside" and gpu is not None:
        sleeps = ", but sleeps while the policy is trained" if run.objective.engine_sleeps else ", all the time"
        share = f"{run.objective.engine_share:.0%} of {gpu.name}"
        yield f"vLLM is counted as {share}{sleeps}: its actual use is not modelled"
