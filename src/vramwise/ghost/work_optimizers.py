"""What clipping gradients and an optimizer's step read, write and launch, parameter by parameter.

Passes over the parameters follow torch 2.11 (`torch/optim/adam.py`), bitsandbytes 0.50 and transformers' Adafactor.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.ghost.optimizers.bitsandbytes import is_embedding
from vramwise.ghost.tape import Parameter
from vramwise.ghost.work import Kernel, Work
from vramwise.types import RunSpec

# What one launch of torch's multi-tensor kernels takes: so many tensors, and so many chunks of elements.
_MANY, _ELEMENTS = 36, 320 * 65536
# `foreach` Adam: a lerp, two products, a root, a division, an addition and the update, over lists of tensors
_FOREACH_READ, _FOREACH_WRITTEN, _FOREACH_LAUNCHES = 12, 8, 9
# Adafactor: casts, squares, two means, roots, their product, a norm, and the update, one parameter at a time
_FACTORED_READ, _FACTORED_WRITTEN, _FACTORED_LAUNCHES = 9, 6, 20
# Newton and Schulz: so many rounds of three products
_ROUNDS = 5


def _about(kernel: Kernel, parameter: Parameter, calls: int = 1) -> Kernel:
    """Say which parameter a kernel is for, and what the host goes through for it."""
    kernel.about, kernel.hooks = parameter.name, calls
    return kernel


def _launches(elements: int) -> float:
    """Return a tensor's part in the launches of a multi-tensor kernel."""
    return max(1 / _MANY, elements / _ELEMENTS)


def _many(work: Work, read: float, written: float, launches: float) -> Kernel:
    """Return a tensor's part in kernels over many tensors, which torch's own code launches in a row."""
    kernel = work.stream(read, written, "optimizer", launches)
    kernel.by = "backward"
    return kernel


def list_clipping(work: Work, parameters: Sequence[Parameter]) -> None:
    """List the norms of all gradients, then all of them scaled: kernels over many tensors at once."""
    for parameter in parameters:
        if parameter.grad is not None:
            nbytes = parameter.grad.numel * parameter.grad.dtype.size
            launches = _launches(parameter.grad.numel)
            _about(_many(work, nbytes, 0, launches), parameter)
            _about(_many(work, nbytes, nbytes, launches), parameter)


def list_update(work: Work, run: RunSpec, parameters: Sequence[Parameter]) -> None:
    """List the kernels of a step over these parameters, of which a rank may hold a share."""
    ranks = max(run.batch.data_parallel, 1) if run.sharding.is_zero else 1
    on_host = run.sharding.offload_optimizer or (run.sharding.offload_params and run.sharding.kind != "none")
    for parameter in parameters:
        elements = -(-parameter.local // ranks)
        if on_host:
            _about(work.on_host(elements, parameter.state_dtype.size), parameter)
        else:
            _list_one(work, run.optimizer.name.lower(), elements, parameter)
    if on_host:
        work.sync()


def _list_one(work: Work, name: str, elements: int, parameter: Parameter) -> None:
    """List one parameter's update."""
    nbytes = elements * parameter.state_dtype.size
    if "8bit" in name or "bnb" in name or name.startswith("paged"):
        wide = "8bit" not in name or is_embedding(parameter)
        states = elements * (1 if "lion" in name else 2) * (4 if wide else 1)
        kernel = _about(work.stream(2 * nbytes + states, nbytes + states, "optimizer"), parameter)
        kernel.by = "library"
        if not wide:
            kernel.family, kernel.flops = "blockwise", elements  # states are looked up in tables, element by element
        _about(work.sync(), parameter, 0)  # after every parameter
    elif name in ("adamw_torch", "adamw_hf", "adamw", "adam", "rmsprop", "adagrad"):
        launches = _FOREACH_LAUNCHES * _launches(elements)
        kernel = _many(work, _FOREACH_READ * nbytes, _FOREACH_WRITTEN * nbytes, launches)
        _about(kernel, parameter, _FOREACH_LAUNCHES)
    elif "adafactor" in name or "came" in name:
        nbytes = 4 * elements
        kernel = work.stream(_FACTORED_READ * nbytes, _FACTORED_WRITTEN * nbytes, "optimizer", _FACTORED_LAUNCHES)
        _about(kernel, parameter)
    elif "muon" in name and len(parameter.shape) == 2 and not is_embedding(parameter):
        short, long = sorted(parameter.shape)
        for m, n, k in ((short, short, long), (short, short, short), (short, long, short)) * _ROUNDS:
            _about(work.product(None, m, n, k, dtype=parameter.state_dtype), parameter)
    else:
        _about(_many(work, 4 * nbytes, 3 * nbytes, _launches(elements)), parameter)
