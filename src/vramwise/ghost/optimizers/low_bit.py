"""torchao's AdamW in 8 or 4 bits: codes and an fp32 scale for each block; small or uneven parameters keep full
states."""

from __future__ import annotations

from vramwise.ghost.optimizers.base import Kind, StatesOnly
from vramwise.ghost.tape import Parameter, Storage, Tape

_MIN_QUANTISED = 4096


class LowBitAdam(StatesOnly):
    """Two quantised states; the update is compiled into one kernel a parameter."""

    def __init__(self, parameters: list[Parameter], *, bits: int) -> None:
        super().__init__(parameters)
        self.bits = bits
        self.block = 256 if bits == 8 else 128

    def make(self, t: Tape, parameter: Parameter) -> list[Storage]:
        """Return a parameter's states."""
        numel = parameter.local
        sizes = [numel * parameter.state_dtype.size]
        if numel >= _MIN_QUANTISED and numel % self.block == 0:
            code_bytes = 256 * 4 if self.bits == 8 else 16 * 4
            sizes = [numel * self.bits // 8, numel // self.block * 4, code_bytes]
        return [Storage(t, size) for size in (4, *sizes, *sizes)]


OPTIMIZERS = (
    Kind(
        names=("adamw_torch_8bit", "adamw_torch_4bit", "ao_adamw_8bit", "ao_adamw_4bit", "ao_adamw_fp8"),
        make=lambda name, trained: LowBitAdam(trained.ordered, bits=4 if "4bit" in name else 8),
    ),
)
