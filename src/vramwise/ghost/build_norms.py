"""The norms of a model, by what its family's block facts say and which kernels the run uses."""

from __future__ import annotations

from vramwise.ghost.block_words import NORMS
from vramwise.ghost.model.compiled import CompiledNorm
from vramwise.ghost.model.liger import LigerNorm
from vramwise.ghost.model.norms import LayerNorm, Norm
from vramwise.ghost.weights import Weights


class Norms:
    """Builds norms by their names."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.model = weights.model
        self.run = weights.run
        self.facts = weights.block

    @property
    def own_layers(self) -> bool:
        """Whether the trainer's own kernels run the parts of a block."""
        return self.model.model_type in self.run.kernels.fused_layers

    def norm(self, name: str) -> Norm:
        """The norm of that name, of the family's kind."""
        weight, rms = self.weights.get(f"{name}.weight"), self.model.norm == "rms"
        if weight is None or (not rms and self.facts.norm == "stock"):
            return LayerNorm(weight, self.weights.get(f"{name}.bias"))
        if rms and self.own_layers:
            return LigerNorm(weight, in_place=self.facts.norm == "stock")
        if rms and self.weights.compiled:
            return CompiledNorm(weight)
        if rms and "rms_norm" in self.run.kernels.liger and not self._left_by_liger(name):
            return LigerNorm(weight, in_place=self.facts.liger_norm_in_place)
        return NORMS[self.facts.norm](weight)

    def _left_by_liger(self, name: str) -> bool:
        """Where Liger replaces the norms of a model that is built already, most heads keep theirs."""
        of_heads = name.endswith(self.facts.head_norms)
        return of_heads and not self.run.kernels.liger_before_build and not self.facts.liger_takes_head_norms

    def norm_or_none(self, name: str) -> Norm | None:
        """The same, or None where the model has no such norm."""
        return self.norm(name) if self.weights.get(f"{name}.weight") is not None else None
