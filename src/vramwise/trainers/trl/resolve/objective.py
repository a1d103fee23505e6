"""Resolves the objective, references, log-probabilities and generation, as TRL 1.16's trainers do."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.trainers.arguments import Arguments
from vramwise.trainers.arguments.resolve.savings import liger_loss
from vramwise.trainers.trl.kind import Kind
from vramwise.types import Target

_OBJECTIVES = {
    "sft": "tokens",
    "distillation": "tokens",
    "dpo": "dpo",
    "kto": "kto",
    "orpo": "orpo",
    "cpo": "cpo",
    "reward": "reward",
    "grpo": "grpo",
    "rloo": "grpo",
}
_SUPERVISED = ("sft", "reward")
_ENGINE = ("engine", "engine_share", "engine_sleeps")
_GENERATION = ("generation_rows", "completion_len", "rows_per_prompt", "old_log_probs")
# Since this version, the head is fused into the loss everywhere.
_FUSED_HEAD = (1, 15)
# Since this version, slices of tokens are the default (`SFTConfig.__post_init__` of 1.6.0 and 1.8.0).
_SLICED = (1, 7)
# Before this version, log-probabilities were gathered from the log-softmax of all logits (dpo_trainer.py of 0.14.0).
_SELECTIVE = (0, 15)
# Before this version, they were selected row by row, without a kernel (`selective_log_softmax` of 1.13.0).
_ONE_KERNEL = (1, 14)
# Before this version, slices were computed from fp32 copies of hidden states and the head's weight.
_PRODUCT_IN_COMPUTE_TYPE = (1, 13)
# Between these versions, the reference of a model that a script loaded had TRL's own default dtype. Before, it was a
# copy of the policy (`create_reference_model` in dpo_trainer.py of 0.7.11 to 0.26.2).
_REFERENCE_ANEW, _REFERENCE_LIKE_POLICY = (0, 27), (1, 16)


def resolve_preference(args: Arguments, target: Target, kind: Kind) -> None:
    """Fill objective, rl, reference…, log_probs, loss_kernel and generation. Needs the method and the batch."""
    name = kind.name
    if kind.assumed:
        args.fields.assume("objective", _OBJECTIVES[name], f"{name}: {kind.why}")
    else:
        args.derive("objective", _OBJECTIVES[name], f"{name}: {kind.why}", key=kind.key)
    args.derive("rl", None if name in _SUPERVISED else name, kind.why, key=kind.key)
    if kind.key is None:
        del args.fields.keys["rl"]  # the command sets it, not a key of the file
    _reference(args, target, name)
    _loss(args, target, name)
    _generation(args, name)


def _loss(args: Arguments, target: Target, name: str) -> None:
    fused = not target.stack.parts("trl") or target.stack.parts("trl") >= _FUSED_HEAD
    tiles = "TRL computes the head in tiles: logits are never held"
    if name == "sft" and args.value("label_smoothing_factor"):
        why = "label smoothing needs all logits"
        args.derive("loss_kernel", "stock", why, key="label_smoothing_factor")
    elif fused:
        args.derive("loss_kernel", "tiled", tiles)
    elif name == "sft":
        _sliced(args, target)
    else:
        args.derive("loss_kernel", "tiled", "TRL before 1.15 uses slices of tokens, which hold less than these tiles")
    if fused and name in ("dpo", "kto", "grpo", "rloo"):
        args.derive("log_probs", "tiled", tiles)
    elif name in ("dpo", "kto") and () < target.stack.parts("trl") < _SELECTIVE:
        args.derive("log_probs", "whole", "TRL before 0.15 gathers them from the log-softmax of all logits")
    elif () < target.stack.parts("trl") < _ONE_KERNEL:
        args.derive("log_probs", "selected", "TRL before 1.14 selects them row by row")
    else:
        args.derive("log_probs", "fused", "TRL's kernel takes the logits")
    losses = args.value("loss_type")
    chosen = name == "orpo" or (name == "dpo" and "sft" in (losses if isinstance(losses, list) else [losses]))
    args.derive("chosen_cross_entropy", chosen, "part of the loss" if chosen else "not part of the loss")


def _sliced(args: Arguments, target: Target) -> None:
    """Fill the SFT loss before 1.15: slices of 256 tokens, unless `loss_type` or Liger says otherwise."""
    loss = args.value("loss_type") or ("chunked_nll" if target.stack.parts("trl") >= _SLICED else "nll")
    if liger_loss(args):
        args.derive("loss_kernel", "liger_fused_linear", "use_liger_kernel, before TRL 1.15", key="use_liger_kernel")
    elif loss in ("nll", "dft") or args.value("use_liger_kernel"):
        args.derive("loss_kernel", "dft" if loss == "dft" else "stock", "before TRL 1.15: all logits", key="loss_type")
    else:
        kernel = "slices" if target.stack.parts("trl") >= _PRODUCT_IN_COMPUTE_TYPE else "fp32_slices"
        args.derive("loss_kernel", kernel, "TRL before 1.15 computes the head 256 tokens at a time", key="loss_type")


def _reference(args: Arguments, target: Target, name: str) -> None:
    adapter, weights = args.values["adapter"], args.values["weights_dtype"]
    before = name in ("dpo", "kto") and bool(args.value("precompute_ref_log_probs"))
    key = "precompute_ref_log_probs"
    args.derive("reference_precomputed", before, f"{key} is {'on' if before else 'off'}", key=key)
    kind, why = _kind(args, name, before)
    args.derive("reference", kind, why, key="use_peft" if adapter else key if before else None)
    args.derive("reference_whole", kind == "model", "TRL's `prepare_fsdp` names no blocks")
    anew = _REFERENCE_ANEW <= target.stack.parts("trl") < _REFERENCE_LIKE_POLICY
    if kind == "model" and anew and _loaded_anew(args):
        args.derive("reference_dtype", "fp32", "before TRL 1.16, where model_init_kwargs names no dtype")
    else:
        args.derive("reference_dtype", weights, "loaded as the policy is")


def _loaded_anew(args: Arguments) -> bool:
    """Return whether TRL loads the reference of a model that the script created, with no dtype written for it."""
    script, block = args.fields.config.document.script, args.value("model_init_kwargs")
    said = isinstance(block, Mapping) and "dtype" in block
    return script is not None and not said and not {"reference model", "named model"} & script.facts.keys()


def _kind(args: Arguments, name: str, before: bool) -> tuple[str, str]:
    needs = name in ("dpo", "kto") or (name in ("grpo", "rloo") and bool(args.value("beta")))
    if not needs:
        return "none", "none is needed"
    script = args.fields.config.document.script
    if script is not None and "reference model" in script.facts:
        return "model", "the script hands the trainer a second model"
    if args.values["adapter"] and script is not None and "adapter created by the script" in script.facts:
        return "adapter_copy", "TRL adds a frozen copy of the adapter to a model that has one"
    if args.values["adapter"]:
        return "adapter_off", "the policy with its adapter switched off"
    if before and not args.values["sharding"].startswith("fsdp"):
        return "none", "the policy itself, before its first step"
    return "model", "a second model, loaded as the policy is"


def _generation(args: Arguments, name: str) -> None:
    if name not in ("grpo", "rloo"):
        args.fields.neutral(*_GENERATION, *_ENGINE, why="nothing is generated")
        return
    micro, accumulation = args.values["micro_batch_size"], args.values["gradient_accumulation_steps"]
    args.take_count("completion_len", "max_completion_length")
    args.take_count("rows_per_prompt", "num_generations")
    rows = _generated_rows(args, micro, accumulation)
    _engine(args)
    turns = max(1, rows // micro) * args.count("num_iterations")
    old = accumulation % turns != 0 or args.values["engine"] != "policy"
    args.derive(
        "old_log_probs", old, "samples may be older than the policy" if old else "samples come from the current policy"
    )


def _generated_rows(args: Arguments, micro: int, accumulation: int) -> int:
    """Fill the rows of one generation, which serves several micro-steps.

    `generation_batch_size` counts over all ranks.
    """
    ranks = args.values["data_parallel"]
    if args.value("generation_batch_size"):
        rows = max(micro, args.count("generation_batch_size") // ranks)
        return int(args.put("generation_rows", "generation_batch_size", rows))
    steps = args.count("steps_per_generation") if args.value("steps_per_generation") else accumulation
    why = f"micro {micro} × {steps} micro-steps"
    return int(args.derive("generation_rows", micro * steps, why, key="steps_per_generation"))


def _engine(args: Arguments) -> None:
    if not args.value("use_vllm"):
        args.fields.neutral(*_ENGINE, why="the policy generates completions itself")
        return
    beside = args.value("vllm_mode") == "colocate"
    args.derive("engine", "beside" if beside else "elsewhere", f"vllm_mode {args.value('vllm_mode')}", key="vllm_mode")
    share = args.value("vllm_gpu_memory_utilization")
    share = min(1.0, max(0.0, float(share))) if isinstance(share, int | float) else 0.0
    args.put("engine_share", "vllm_gpu_memory_utilization", share if beside else 0.0)
    args.put("engine_sleeps", "vllm_enable_sleep_mode", beside and bool(args.value("vllm_enable_sleep_mode")))
