"""Record what Axolotl's LoRA kernels allocate, allocation by allocation, on a CPU: `tests/data/lora_kernels.json`.

Runs the real autograd functions of the installed Axolotl on small tensors and notes each new storage's bytes and how
many bytes lived before it. What needs a GPU is replaced by what it allocates there: the activation, the norms of DoRA,
dequantising, fp32 products of bf16 factors, dropout.

    python scripts/record_lora_kernels.py tests/data/lora_kernels.json     (adds or replaces the installed version)
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import axolotl.kernels.lora as kernels
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

ROWS, TOKENS, HIDDEN, WIDE, KEYS, RANK = 2, 8, 32, 48, 16, 4
HALF = torch.bfloat16
SHAPES = {
    "mlp": {"gate_proj": (WIDE, HIDDEN), "up_proj": (WIDE, HIDDEN), "down_proj": (HIDDEN, WIDE)},
    "qkv": {"q_proj": (HIDDEN, HIDDEN), "k_proj": (KEYS, HIDDEN), "v_proj": (KEYS, HIDDEN)},
    "o": {"o_proj": (HIDDEN, HIDDEN)},
}
APPLY = {"mlp": kernels.apply_lora_mlp_swiglu, "qkv": kernels.apply_lora_qkv, "o": kernels.apply_lora_o}


class Recorder(TorchDispatchMode):
    """Notes new storages; those of the arguments are not new."""

    def __init__(self, given: list[torch.Tensor]) -> None:
        super().__init__()
        self.given = {tensor.untyped_storage()._cdata for tensor in given}
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.events: list[tuple[int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an op, and look at what it made."""
        self.live = {key: item for key, item in self.live.items() if not item[0].expired()}
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, tuple | list) else [result]:
            if not isinstance(made, torch.Tensor):
                continue
            storage = made.untyped_storage()
            if storage._cdata not in self.live and storage._cdata not in self.given:
                self.events.append((storage.nbytes(), sum(nbytes for _, nbytes in self.live.values())))
                self.live[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        return result


class Dropped(torch.autograd.Function):
    """CUDA's fused dropout: a mask of bytes and the result."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Mask and result."""
        ctx.save_for_backward(torch.empty(x.shape, dtype=torch.bool))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """One new gradient."""
        return torch.empty_like(grad)


class Dropout(nn.Module):
    """Stands for nn.Dropout on a GPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        dropped: torch.Tensor = Dropped.apply(x)
        return dropped


def dequantise(weight: torch.Tensor, state: Any = None) -> torch.Tensor:
    """bitsandbytes' nf4 with double quantisation, as the kernels call it."""
    if state is None:
        return weight
    out = torch.empty(state.shape, dtype=HALF)
    absmax = torch.empty(-(-out.numel() // 64))
    absmax += 1
    return out.t() if weight.shape[0] == 1 else out


def gradient_product(left: torch.Tensor, right: torch.Tensor, dtype: torch.dtype, scale: float) -> torch.Tensor:
    """`mm` with a wider result, which CPUs do not have."""
    return torch.empty((left.shape[0], right.shape[1]), dtype=dtype)


def merged_norms(weight, state, down, up, scale, magnitude, dtype):  # type: ignore[no-untyped-def]
    """What the Triton kernel of DoRA takes and gives."""
    whole = dequantise(weight.t(), state).t().contiguous().to(dtype)
    out = torch.empty(whole.shape[0], dtype=dtype)
    _launch(whole, up.contiguous().to(dtype), down.contiguous().to(dtype), magnitude.contiguous(), out)
    return out.detach()


def _launch(*arguments: torch.Tensor) -> None:
    """Arguments live as long as the call."""


def magnitude_scale(weight, state, down, up, scale, magnitude, dtype):  # type: ignore[no-untyped-def]
    """`_compute_dora_scale` where there is no norm from before."""
    result = merged_norms(weight, state, down, up, scale, magnitude, dtype)
    magnitude.kept = (magnitude.to(dtype) / result).detach()
    return result


def replace_gpu_parts() -> None:
    """Put the stand-ins where the kernels look for the real ones."""

    def forward(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(gate)

    def backward(grad: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return grad, gate, up

    kernels.dequantize = dequantise
    kernels._compute_dora_scale = magnitude_scale
    kernels.swiglu_forward, kernels.swiglu_backward = forward, backward
    kernels._activation_kernels = lambda kind: (forward, backward)
    kernels._gradient_mm = gradient_product
    found = kernels.get_lora_parameters

    def with_state(module: Any) -> tuple[Any, ...]:
        weight, bias, _, *rest = found(module)
        return (weight, bias, getattr(weight, "state", None), *rest)

    kernels.get_lora_parameters = with_state


def projection(shape: tuple[int, int], *, dora: bool, dropout: bool, packed: bool) -> SimpleNamespace:
    """What the kernels read of PEFT's layer."""
    if packed:
        weight = nn.Parameter(torch.zeros(shape[0] * shape[1] // 2, 1, dtype=torch.uint8), requires_grad=False)
        weight.state = SimpleNamespace(shape=shape)
    else:
        weight = nn.Parameter(torch.zeros(shape, dtype=HALF), requires_grad=False)
    bias = nn.Parameter(torch.zeros(shape[0], dtype=HALF), requires_grad=False)
    magnitude = {"one": SimpleNamespace(weight=nn.Parameter(torch.ones(shape[0])))} if dora else {}
    return SimpleNamespace(
        base_layer=SimpleNamespace(weight=weight, bias=bias),
        disable_adapters=False,
        merged=False,
        active_adapters=["one"],
        lora_A={"one": nn.Linear(shape[1], RANK, bias=False)},
        lora_B={"one": nn.Linear(RANK, shape[0], bias=False)},
        scaling={"one": 2.0},
        lora_dropout={"one": Dropout() if dropout else nn.Identity()},
        lora_magnitude_vector=magnitude,
    )


def tensors_of(module: SimpleNamespace) -> list[torch.Tensor]:
    """What is there before the kernel runs."""
    magnitudes = [part.weight for part in module.lora_magnitude_vector.values()]
    factors = [module.lora_A["one"].weight, module.lora_B["one"].weight]
    return [module.base_layer.weight, module.base_layer.bias, *factors, *magnitudes]


def record(kind: str, *, dora: bool, dropout: bool, packed: bool) -> list[tuple[int, int]]:
    """One forward and one backward."""
    modules = {
        name: projection(shape, dora=dora, dropout=dropout, packed=packed) for name, shape in SHAPES[kind].items()
    }
    layer = SimpleNamespace(training=True, **modules)
    x = torch.zeros(ROWS, TOKENS, HIDDEN, dtype=HALF, requires_grad=True)
    widths = [shape[0] for shape in SHAPES[kind].values()] if kind == "qkv" else [HIDDEN]
    grads = [torch.zeros(ROWS, TOKENS, width, dtype=HALF) for width in widths]
    recorder = Recorder([x, *grads, *[tensor for module in modules.values() for tensor in tensors_of(module)]])
    with recorder:
        out = APPLY[kind](layer, x)
        torch.autograd.backward(out if isinstance(out, tuple) else (out,), grads)
    return recorder.events


def main() -> None:
    """Record every combination, and write them beside those of other versions."""
    replace_gpu_parts()
    path = Path(sys.argv[1])
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    known[version("axolotl")] = {
        " ".join([kind, *(word for word, on in zip(("dora", "dropout", "4bit"), flags, strict=True) if on)]): record(
            kind, dora=flags[0], dropout=flags[1], packed=flags[2]
        )
        for kind, *flags in product(SHAPES, (False, True), (False, True), (False, True))
    }
    releases = []
    for release, runs in sorted(known.items()):
        lines = [f"{json.dumps(name)}: {json.dumps(events)}" for name, events in runs.items()]
        releases.append(f"{json.dumps(release)}: {{\n" + ",\n".join(lines) + "\n}")
    path.write_text("{\n" + ",\n".join(releases) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
