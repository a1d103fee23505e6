"""Which part of a run a traceback comes from, judging by its functions and files.

Outer calls name an evaluation or a checkpoint within training, so they are looked for first; then the part of the step.
The names are those of torch, transformers, accelerate, TRL, DeepSpeed and the supported trainers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vramwise.diagnosis.evidence import Frame, PhaseName


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OUTER: dict[PhaseName, frozenset[str]] = {
    "eval": _words(
        """
        evaluate evaluation_loop prediction_step prediction_loop _evaluate eval_step validation_step run_evaluation
        validate
        """
    ),
    "save": _words(
        """
        save_model _save _save_checkpoint save_pretrained save_state save_checkpoint get_state_dict
        _save_optimizer_and_scheduler save_fsdp_model save_fsdp_optimizer full_tensor state_dict _pre_state_dict_hook
        _full_pre_state_dict_hook _post_state_dict_hook
        """
    ),
    "resume": _words(
        """
        _load_optimizer_and_scheduler _load_from_checkpoint load_checkpoint load_fsdp_optimizer load_state
        _load_rng_state load_optimizer_state_dict
        """
    ),
    "load": _words(
        """
        from_pretrained _load_pretrained_model load_model load_checkpoint_and_dispatch dispatch_model
        _load_state_dict_into_model _load_state_dict_into_meta_model set_module_tensor_to_device
        convert_and_load_state_dict_in_model _move_model_to_device get_peft_model load_adapter prepare_model
        _prepare_deepspeed caching_allocator_warmup build_model create_quantized_param
        """
    ),
}
_OPTIMIZER = re.compile(
    r"torch/optim/|bitsandbytes/optim/|/optimizers?/|torchao/.{0,80}optim|accelerate/optimizer\.py|deepspeed/ops/"
)
# DeepSpeed creates the optimizer state, and fp32 copies of the weights for it, before the first step.
_MAKING_STATES = _words(
    """
    initialize_optimizer_states _initialize_optimizer_states _setup_for_real_optimizer _create_fp32_partitions
    """
)
_ZERO_OPTIMIZER = re.compile(r"zero/stage|zero_optimizer")
_STEPPING = frozenset(
    ("step", "_init_group", "init_state", "update_step", "adamw", "_multi_tensor_adamw", "wrapper", "profile_hook_step")
)
_MODEL_CALLS = frozenset(("forward", "_call_impl", "training_step", "compute_loss", "backward", "_engine_run_backward"))
# The last is accelerate's conversion of the model's outputs, the logits.
_LOSS_FUNCTIONS = _words(
    """
    ForCausalLMLoss fixed_cross_entropy cross_entropy log_softmax nll_loss loss_function selective_log_softmax
    get_batch_logps _get_batch_logps entropy_from_logits _convert_to_fp32
    """
)
_LOSS_CODE = re.compile(
    r"\blm_head\(|logits\.float\(\)|\.upcast|shift_logits|cross_entropy\(|log_softmax\(|loss_fct\(|self\.loss_function\("
)


def phase_of(frames: Sequence[Frame]) -> PhaseName:
    """Return the part of the run a traceback comes from; "" if it does not say."""
    functions = {frame.function for frame in frames}
    # A truncated log shows the last call only in the source line.
    if functions & _MAKING_STATES or any(f"{name}(" in frame.code for frame in frames[-1:] for name in _MAKING_STATES):
        return "optimizer"
    if any(frame.function == "load_state_dict" and _OPTIMIZER.search(_slashed(frame)) for frame in frames):
        return "resume"
    for phase, names in _OUTER.items():
        if functions & names and not (phase in ("load", "resume") and "train" in functions and _in_step(frames)):
            return phase
    return _part_of_step(frames)


def _in_step(frames: Sequence[Frame]) -> bool:
    return any(frame.function in ("training_step", "compute_loss", "_inner_training_step") for frame in frames)


def _part_of_step(frames: Sequence[Frame]) -> PhaseName:
    functions = {frame.function for frame in frames}
    if any("clip_grad_norm" in function for function in functions):
        return "clip"
    if _in_optimizer(frames):
        return "optimizer"
    if "backward" in functions or "_engine_run_backward" in functions:
        return "backward"
    if in_loss(frames):
        return "loss"
    if functions & {"forward", "_call_impl", "compute_loss", "_wrapped_call_impl", "__call__"}:
        return "forward"
    return "train" if functions & {"training_step", "_inner_training_loop", "train"} else ""


def _slashed(frame: Frame) -> str:
    return frame.file.replace("\\", "/")


def _in_optimizer(frames: Sequence[Frame]) -> bool:
    """Whether the innermost calls are the optimizer's; an optimizer that runs the model in a closure does not count."""
    inside: list[str] | None = None  # functions called since the optimizer's own; None before that
    stepping = False
    for frame in frames:
        if _OPTIMIZER.search(_slashed(frame)) and frame.function != "backward":
            inside, stepping = [], stepping or frame.function in _STEPPING
        elif inside is not None:
            inside.append(frame.function)
    return stepping and inside is not None and not _MODEL_CALLS.intersection(inside)


def in_loss(frames: Sequence[Frame]) -> bool:
    """Whether the innermost calls compute logits or the loss."""
    return any(frame.function in _LOSS_FUNCTIONS or _LOSS_CODE.search(frame.code) for frame in frames[-8:])


def in_eager_attention(frames: Sequence[Frame]) -> bool:
    """Whether the innermost calls compute eager attention scores."""
    return any(
        "eager_attention" in frame.function
        or (
            "attn_weights" in frame.code and ("matmul" in frame.code or "softmax" in frame.code or "mask" in frame.code)
        )
        for frame in frames[-6:]
    )


def in_zero_optimizer(frames: Sequence[Frame]) -> bool:
    """Whether the calls include DeepSpeed's sharded optimizer."""
    return any("deepspeed" in frame.file.lower() and _ZERO_OPTIMIZER.search(_slashed(frame)) for frame in frames)


def in_pinning(frames: Sequence[Frame]) -> bool:
    """Whether the innermost calls pin host memory, which also goes through the driver."""
    return any("pin_memory" in frame.function or ".pin_memory(" in frame.code for frame in frames[-3:])
