"""Optimizers that treat matrices apart, and everything else as AdamW does: Muon, GaLore, APOLLO.

Muon: one momentum for each matrix, orthogonalised in bf16. States are exact; the temporaries of the Newton–Schulz
iteration are those of one matrix at a time.

GaLore and APOLLO (after galore-torch 1.0 and apollo-torch 1.0): the moments of each matrix are held in a space of a
small rank, one parameter at a time, those that are not projected first. GaLore takes its basis from a singular value
decomposition of the gradient, which it keeps a slice of: of an fp32 gradient that is a view, so the whole factor stays;
of others a copy of the slice. APOLLO draws its basis.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vramwise.ghost.dtypes import FP32
from vramwise.ghost.optimizers.base import Kind, Trained
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


_NAME = re.compile(r"(galore|apollo)_adamw rank (\d+)")


class Projected:
    """Moments of matrices at a rank, of embeddings, head and vectors whole."""

    def __init__(self, trained: Trained, rank: int, *, decomposes: bool) -> None:
        self.parameters = [
            *[one for one in (*trained.plain, *trained.decayed) if not _is_matrix(one)],
            *[one for one in (*trained.plain, *trained.decayed) if _is_matrix(one)],
        ]
        self.rank = rank
        self.decomposes = decomposes
        self.states: dict[int, Sequence[Storage]] = {}

    def step(self, t: Tape) -> None:
        """States at the first step; then the update: roots and quotients, and the way back to the whole matrix."""
        for parameter in self.parameters:
            if parameter.grad is None:
                continue
            size = parameter.state_dtype.size
            numel = self._low(parameter) if _is_matrix(parameter) else parameter.local
            basis = [] if not _is_matrix(parameter) or id(parameter) in self.states else [self._basis(t, parameter)]
            low = Storage(t, numel * size) if _is_matrix(parameter) else None
            if id(parameter) not in self.states:
                t.mark("optimizer", parameter.name)
                self.states[id(parameter)] = [*basis, Storage(t, numel * size), Storage(t, numel * size)]
            t.mark("temporary", "optimizer step")
            roots, quotients = Storage(t, numel * size), Storage(t, numel * size)
            whole = [Storage(t, parameter.local * size) for _ in range(2)] if _is_matrix(parameter) else []
            del low, roots, quotients, whole

    def _low(self, parameter: Parameter) -> int:
        return min(self.rank, *parameter.shape) * max(parameter.shape)

    def _basis(self, t: Tape, parameter: Parameter) -> Storage:
        """Of the shorter side: drawn, or out of a decomposition whose factors and copies go again."""
        short, long = sorted(parameter.shape)
        size = parameter.state_dtype.size
        kept = min(self.rank, short) * short * size
        if not self.decomposes:
            t.mark("optimizer", parameter.name)
            return Storage(t, kept)
        t.mark("temporary", "singular value decomposition")
        matrix = Storage(t, short * long * FP32.size) if parameter.state_dtype is not FP32 else None
        tall = Storage(t, short * long * FP32.size)
        t.mark("optimizer", parameter.name)
        square = Storage(t, short * short * FP32.size)
        t.mark("temporary", "singular value decomposition")
        copies = Storage(t, short * long * FP32.size)
        workspace = Storage(t, short * (long + short) * FP32.size)
        del copies, workspace, tall, matrix
        if parameter.state_dtype is FP32:
            return square
        t.mark("optimizer", parameter.name)
        return Storage(t, kept)


def _make(name: str, trained: Trained) -> Projected:
    found = _NAME.fullmatch(name)
    assert found is not None
    return Projected(trained, int(found[2]), decomposes=found[1] == "galore")


OPTIMIZERS = (
    Kind(handles=lambda name: "muon" in name, make=lambda name, trained: Muon(trained.ordered)),
    Kind(handles=lambda name: _NAME.fullmatch(name) is not None, make=_make),
)
