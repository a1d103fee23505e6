"""The feed-forward parts of a model's blocks, mixtures of experts included, by what its family's block facts say."""

from __future__ import annotations

from vramwise.errors import VramwiseError
from vramwise.ghost.build_layers import FusedKernels, Norms, projection
from vramwise.ghost.dtypes import BY_NAME
from vramwise.ghost.mixers.experts import experts_of, own_mixture, router_of
from vramwise.ghost.model.block import Mlp
from vramwise.ghost.model.compiled import CompiledGatedMlp
from vramwise.ghost.model.fused_lora import FusedLoraMlp
from vramwise.ghost.model.liger import LigerFusedGatedMlp, LigerGatedMlp
from vramwise.ghost.model.mlp import DroppedMlp, FusedGatedMlp, GatedMlp, PlainMlp, activation_named
from vramwise.ghost.model.moe import ExpertWeight, MoeMlp, PackedExperts
from vramwise.ghost.tiling import TiledMlp
from vramwise.ghost.weights import Weights


class FeedForwards:
    """Builds the feed-forward part of each block."""

    def __init__(self, weights: Weights, norms: Norms, fused: FusedKernels) -> None:
        self.weights = weights
        self.model = weights.model
        self.run = weights.run
        self.facts = weights.block
        self.norms = norms
        self.fused = fused

    def mlp(self, start: str, layer: int) -> Mlp:
        """Return the feed-forward part of a block, with dropout where that is a part of it."""
        made = self._tiled(self._mlp(start, layer), self._place(start))
        rate = self.model.hidden_dropout
        return DroppedMlp(made, rate) if self.facts.drops_inside and rate else made

    def _place(self, start: str) -> str:
        return f"{start}{self.facts.feed_forward}." if self.facts.feed_forward else start

    def _mlp(self, start: str, layer: int) -> Mlp:
        model = self.model
        place = self._place(start)
        if model.num_experts and layer not in model.dense_layers:
            return self._mixture(place)
        if self.weights.rows(f"{start}shared_mlp.input_linear.weight"):  # Granite 4 without experts
            return FusedGatedMlp(
                *[projection(self.weights, f"{start}shared_mlp.{n}_linear") for n in ("input", "output")]
            )
        if model.fused_gate_up:
            fused = LigerFusedGatedMlp if "glu_activation" in self.run.kernels.liger else FusedGatedMlp
            return fused(*[projection(self.weights, f"{place}{name}") for name in self.facts.fused_mlp])
        if not model.gated_mlp:
            up, down = self.facts.plain_mlp
            squared = self.fused.squared_mlp(place, (up, down)) if model.activation == "relu2" else None
            if squared is not None:
                return squared
            act = activation_named(model.activation)
            return PlainMlp(projection(self.weights, f"{place}{up}"), projection(self.weights, f"{place}{down}"), act)
        kernel = self.fused.mlp(place)
        if kernel is not None:
            return kernel
        if self.weights.compiled and not self._called_apart(place):
            return CompiledGatedMlp(*[projection(self.weights, f"{place}{part}") for part in self.facts.gated_mlp])
        gated = LigerGatedMlp if "glu_activation" in self.run.kernels.liger else GatedMlp
        return gated(*[projection(self.weights, f"{place}{part}") for part in self.facts.gated_mlp])

    def _called_apart(self, place: str) -> bool:
        """Whether a compiled layer is cut at each projection: those of 8 bits with an adapter are called uncompiled."""
        adapted = any(f"{place}{part}" in self.weights.adapters for part in self.facts.gated_mlp)
        return adapted and self.run.loading.quantization == "8bit"

    def _tiled(self, made: Mlp, place: str) -> Mlp:
        """In pieces, where the run asks for it: not experts, and not a layer that a LoRA kernel took over."""
        if not self.run.savings.tiled_mlp or isinstance(made, FusedLoraMlp | MoeMlp):
            return made
        trained = [item for item in self.weights.trainable() if item.name.startswith(place)]
        return TiledMlp(made, self.run.savings.tiled_mlp_pieces, tuple(trained))

    def _mixture(self, place: str) -> Mlp:
        """Return a mixture of experts."""
        model, by_name = self.model, self.weights.by_name
        facts = self.facts.mixture
        if facts is not None and facts.runs != "gated":
            return own_mixture(self, place, facts)
        if facts is None:
            raise VramwiseError(f"a mixture of experts in a block of the family '{model.family}' is not supported")
        shared_name = next(
            (n for n in ("shared_expert", "shared_experts") if f"{place}{n}.down_proj.weight" in by_name), None
        )
        shared = None
        if shared_name is not None:
            shared = GatedMlp(
                *[projection(self.weights, f"{place}{shared_name}.{part}_proj") for part in ("gate", "up", "down")]
            )
        has_gate = f"{place}shared_expert_gate.weight" in by_name
        return MoeMlp(
            router=router_of(self, f"{place}{facts.router}", facts),
            experts=experts_of(
                self,
                f"{place}experts.",
                biased=f"{place}experts.gate_up_proj_bias" in by_name,
                clamped=facts.clamped,
                masks=self.run.kernels.expert_masks,
            ),
            shared=shared,
            shared_gate=projection(self.weights, f"{place}shared_expert_gate") if has_gate else None,
        )

    def expert_weight(self, name: str) -> ExpertWeight:
        """Return the weight of experts, held quantised where the run does so."""
        shape, bits = self.weights.shapes.get(name), self.run.loading.expert_quantization
        if shape is None or bits is None:
            return self.weights.by_name[name]
        return PackedExperts(shape=shape, bits=bits, dtype=BY_NAME[self.run.precision.weights_dtype])
