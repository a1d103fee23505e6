"""What a block of memory is for, from the Python stack that allocated it, and the line of that stack worth naming.

The stacks are those of torch's memory history: frames of filename, name and line, the innermost first. Works by the
names that torch, transformers, PEFT and bitsandbytes use; a stack it does not know is "other".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Files whose frames say nothing about whose memory it is.
_PLUMBING = ("torch/nn/modules/module.py", "torch/_ops.py", "torch/utils/_contextlib", "torch/_tensor.py", "<frozen")
_CATEGORIES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    # category, parts of file names, function names
    ("optimizer", ("torch/optim/", "bitsandbytes/optim/", "torchao/optim"), ("_init_group", "init_state")),
    ("logits", ("loss_utils", "/loss/"), ("cross_entropy", "ForCausalLMLoss", "fixed_cross_entropy", "log_softmax")),
    (
        "weights",
        ("core_model_loading", "safetensors/"),
        ("from_pretrained", "_load_pretrained_model", "reset_parameters"),
    ),
    ("gradients", ("torch/autograd/",), ("backward", "_engine_run_backward")),
    ("activations", ("modeling_", "torch/nn/functional", "peft/tuners", "liger_kernel"), ("forward", "_call_impl")),
)
_BUILDING = ("__init__", "_apply", "convert", "to", "cuda")


def category_of(stack: Any) -> str:
    """weights, gradients, optimizer, logits, activations or other."""
    frames = _frames(stack)
    if not frames:
        return "other"
    calls = [(file, name) for file, name, _ in frames]
    for category, files, names in _CATEGORIES:
        if category == "activations" and _is_building(calls):
            return "weights"
        if any(name in names or any(part in file for part in files) for file, name in calls):
            return category
    return "weights" if _is_building(calls) else "other"


def _is_building(calls: Sequence[tuple[str, str]]) -> bool:
    """Made by a constructor or by moving a module, and not within a forward pass."""
    names = {name for _, name in calls}
    return bool(names & set(_BUILDING)) and not names & {"forward", "training_step", "compute_loss"}


def place_of(stack: Any) -> str:
    """The innermost call outside torch's plumbing, as `file.py:line function`."""
    frames = _frames(stack)
    for file, name, line in frames:
        if file and not any(part in file for part in _PLUMBING) and not file.endswith((".cpp", ".cu", ".h", "??")):
            return f"{file.rsplit('/', 1)[-1]}:{line} {name}"
    return "no Python stack was recorded"


def _frames(stack: Any) -> list[tuple[str, str, int]]:
    """The frames of a stack, checked: a file from elsewhere may hold anything."""
    found = []
    for frame in stack if isinstance(stack, (list, tuple)) else ():
        if isinstance(frame, dict):
            file, name, line = frame.get("filename"), frame.get("name"), frame.get("line")
            if isinstance(file, str) and isinstance(name, str):
                found.append((file.replace("\\", "/")[:400], name[:120], line if type(line) is int else 0))
    return found
