"""Peak rates of cards (rates.json, published), and the share of them that kernels reach (efficiency.json).

The second file is measured: `tests/measured/speed.py --fit` writes it from recorded runs; with `--record` it writes the
error on other runs into speed_accuracy.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from vramwise.bundled import bundled_json
from vramwise.types import GpuSpec

_TERA, _GIGA, _MEBI = 1e12, 1e9, 1024.0**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Operations and bytes per second; 0 for kinds that the card does not have."""

    name: str
    multiprocessors: int
    half: float
    bf16: float
    fp32: float
    int8: float
    fp8: float
    memory: float
    cache_bytes: float
    pcie: float
    link: float

    def flops(self, dtype: str) -> float:
        """Return the rate of matrix products in this dtype."""
        own = {"bf16": self.bf16, "fp16": self.half, "int8": self.int8, "fp8": self.fp8}.get(dtype, self.fp32)
        return own or self.fp32


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Shares of a card's rates that kernels reach, and the host's time per operation, in seconds.

    Shares: of the tensor rate (`product`, `attention_forward`, `attention_backward`, `cut_loss`), otherwise of the
    memory rate. `sustained`: the share of a rested card's rate that remains when large products follow one another,
    limited by power. `cudnn`: how much faster its attention is than the others'. `strided`: kernels that broadcast,
    transpose or widen. `blockwise`: elements per second that one multiprocessor updates with 8-bit states. `added`: the
    memory share for products that are added to an existing result. `turn`: seconds until a thread block goes on to its
    next row, where one block per multiprocessor processes many. `cached`: how much faster kernels stream data held in
    the last-level cache. `kernel`: fixed time of every kernel on the card.

    `host_forward`, `host_backward`, `host_library`, `host_triton`, `host_copy`: one launch, by whom; `host_product`:
    more for a matrix product; `host_op`: a view or an autograd node; `host_call`: a module; `host_hook`: a hook of a
    saved tensor, or one of many parameters; `host_function`: an autograd function written in Python;
    `host_checkpoint`: the begin of a checkpointed block, forward and again; `host_line`: a line of a log, written and
    flushed; `host_sync`: asking the card for a number, besides the wait; `host_micro_step`, `host_step`: for each of
    those; `host_tensor`: for each parameter whenever the Trainer goes through all of them: after every micro-step to
    count operations, and once a step to clip and clear gradients.
    """

    product: float
    sustained: float
    attention_forward: float
    attention_backward: float
    cudnn: float
    cut_loss: float
    stream: float
    strided: float
    triton: float
    dequantise: float
    optimizer: float
    blockwise: float
    added: float
    turn: float
    scatter: float
    cached: float
    pcie: float
    link: float
    kernel: float
    host_forward: float
    host_backward: float
    host_library: float
    host_triton: float
    host_copy: float
    host_product: float
    host_op: float
    host_call: float
    host_hook: float
    host_function: float
    host_checkpoint: float
    host_line: float
    host_sync: float
    host_micro_step: float
    host_step: float
    host_tensor: float
    host_update: float  # parameters per second that the host CPUs update


def rates_of(gpu: GpuSpec | None) -> Rates | None:
    """Return a card's rates; None if unknown."""
    if gpu is None or gpu.multiprocessors is None or gpu.name not in _rates()["cards"]:
        return None
    row = dict(zip(_rates()["columns"], _rates()["cards"][gpu.name], strict=True))
    half = (row["half"] or 0) * _TERA
    return Rates(
        name=gpu.name,
        multiprocessors=gpu.multiprocessors,
        half=half,
        bf16=half if gpu.bf16 else 0,
        fp32=row["fp32"] * _TERA,
        int8=(row["int8"] or 0) * _TERA,
        fp8=(row["fp8"] or 0) * _TERA,
        memory=row["memory"] * _GIGA,
        cache_bytes=row["cache"] * _MEBI,
        pcie=row["pcie"] * _GIGA,
        link=(row["link"] or row["pcie"]) * _GIGA,
    )


@cache
def efficiency(trainer: str = "") -> Efficiency:
    """Return the measured constants; those measured for this trainer's own code take precedence."""
    stored = bundled_json("facts/efficiency.json")
    values = {**stored["values"], **stored["trainers"].get(trainer, {}).get("values", {})}
    return Efficiency(**{field.name: values[field.name] for field in fields(Efficiency)})


def efficiency_basis(trainer: str = "") -> str:
    """Return a description of the runs they were measured on."""
    stored = bundled_json("facts/efficiency.json")
    return str(stored["trainers"].get(trainer, stored)["basis"])


@cache
def measured_error() -> Mapping[str, Any]:
    """Return the errors of step times on measured runs: `runs`, `median`, `worst` in percent, `basis` in words."""
    found: Mapping[str, Any] = bundled_json("facts/speed_accuracy.json")
    return found


@cache
def _rates() -> Any:
    return bundled_json("facts/rates.json")
