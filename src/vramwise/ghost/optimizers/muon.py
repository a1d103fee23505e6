"""Muon: one momentum for each matrix, orthogonalised in bf16; everything else by AdamW.

States are exact; the temporaries of the Newton–Schulz iteration are those of one matrix at a time.
"""

from __future__ import annotations

from vramwise.ghost.optimizers.base import Kind
from vramwise.ghost.optimizers.bitsandbytes import is_embedding
from vramwise.ghost.optimizers.torch_adam import FusedAdam
from vramwise.ghost.tape import Parameter, Storage, Tape


class Muon:
    """Matrices by momentum, embeddings, head and vectors by Adam."""

    def __init__(self, parameters: list[Parameter]) -> None:
        self.matrices = [parameter for parameter in parameters if _is_matrix(parameter)]
        self.rest = FusedAdam([parameter for parameter in parameters if not _is_matrix(parameter)])
        self.states: dict[int, Storage] = {}

    def step(self, t: Tape) -> None:
        """Momentum, then the iteration: the matrix in bf16, its Gram matrix, and two polynomials of it."""
        for parameter in self.matrices:
            if parameter.grad is None:
                continue
            if id(parameter) not in self.states:
                t.mark("optimizer", parameter.name)
                self.states[id(parameter)] = Storage(t, parameter.local * parameter.state_dtype.size)
            t.mark("temporary", "optimizer step")
            _iterate(t, parameter)
        self.rest.step(t)


def _iterate(t: Tape, parameter: Parameter) -> None:
    update = Storage(t, parameter.local * parameter.state_dtype.size)
    matrix = Storage(t, parameter.numel * 2)
    side = min(parameter.shape[-2:])
    gram = [Storage(t, side * side * 2) for _ in range(3)]
    product = Storage(t, parameter.numel * 2)
    del update, matrix, gram, product


def _is_matrix(parameter: Parameter) -> bool:
    return len(parameter.shape) == 2 and not is_embedding(parameter) and "lm_head" not in parameter.name


OPTIMIZERS = (Kind(handles=lambda name: "muon" in name, make=lambda name, trained: Muon(trained.ordered)),)
