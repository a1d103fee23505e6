"""torchao's AdamW in 8 or 4 bits: codes and an fp32 scale for each block; small or uneven parameters keep full
states."""

from __future__ import annotations

from vramwise.ghost.optimizers.base import Kind
from vramwise.ghost.tape import Parameter, Storage, Tape

_MIN_QUANTISED = 4096


class LowBitAdam:
    """Two quantised states; the update is compiled into one kernel a parameter."""

    def __init__(self, parameters: list[Parameter], *, bits: int) -> None:
        self.parameters = parameters
        self.bits = bits
        self.block = 256 if bits == 8 else 128
        self.states: dict[int, list[Storage]] = {}

    def step(self, t: Tape) -> None:
        """Make the states that are missing."""
        for parameter in self.parameters:
            if parameter.grad is None or id(parameter) in self.states:
                continue
            t.mark("optimizer", parameter.name)
            numel = parameter.local
            made = [Storage(t, 4)]
            for _ in range(2):
                if numel >= _MIN_QUANTISED and numel % self.block == 0:
                    code_bytes = 256 * 4 if self.bits == 8 else 16 * 4
                    made += [
                        Storage(t, numel * self.bits // 8),
                        Storage(t, numel // self.block * 4),
                        Storage(t, code_bytes),
                    ]
                else:
                    made.append(Storage(t, numel * parameter.state_dtype.size))
            self.states[id(parameter)] = made


OPTIMIZERS = (
    Kind(
        names=("adamw_torch_8bit", "adamw_torch_4bit", "ao_adamw_8bit", "ao_adamw_4bit", "ao_adamw_fp8"),
        make=lambda name, trained: LowBitAdam(trained.ordered, bits=4 if "4bit" in name else 8),
    ),
)
