"""The attention of a model's blocks, or what replaces it, by what its family's block facts say."""

from __future__ import annotations

from vramwise.ghost.build_layers import FUSED_ATTENTION, ROTATIONS, FusedKernels, Norms, projection
from vramwise.ghost.mixers import Parts, of_kind
from vramwise.ghost.model.attention import Attention, AttentionLayer, Heads
from vramwise.ghost.model.kernels import (
    VARLEN_WIDEST,
    Eager,
    Flash,
    Kernel,
    MathSdpa,
    RowsAttention,
    Sdpa,
    SinkEager,
    VarlenSdpa,
)
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.model.rotary import Rotation, turn_normed
from vramwise.ghost.ops.fused_layers import turn_by_position
from vramwise.ghost.ops.liger import rotate_in_place
from vramwise.ghost.weights import Weights
from vramwise.models.families.base import Mixer


class Attentions:
    """Builds the attention of each block."""

    def __init__(self, weights: Weights, norms: Norms, fused: FusedKernels) -> None:
        self.weights = weights
        self.model = weights.model
        self.run = weights.run
        self.facts = weights.block
        self.norms = norms
        self.fused = fused

    def _window(self, layer: int) -> int | None:
        """Return how many keys a query of this layer meets at most; None: all before it."""
        kinds = self.model.layer_types
        return self.model.sliding_window if not kinds or "sliding" in kinds[layer] else None

    def kernel(self, start: str, layer: int) -> Kernel:
        """Return the attention implementation of the run."""
        model = self.model
        if self.norms.own_layers:
            packed = self.run.shapes.packing_rows != "none"
            packed_eval = self.run.evaluation.eval_sample_packing
            return RowsAttention(self.run.kernels.packed_attention, packed=packed, packed_eval=packed_eval)
        sinks = self.weights.get(f"{start}self_attn.sinks")
        if self.run.kernels.attn_implementation == "eager" and sinks is not None:
            return SinkEager(sinks, model.attention_dropout)
        if self.run.kernels.attn_implementation == "eager" or self.facts.written_out:
            return Eager(model.attn_logit_softcapping, model.attention_dropout)
        if self.run.kernels.attn_implementation == "sdpa":
            if self.varlen():
                return VarlenSdpa(packed_eval=self.run.evaluation.eval_sample_packing)
            return MathSdpa() if self.facts.undeclared_groups else Sdpa()
        packed, packed_eval = self.run.shapes.packing_rows != "none", self.run.evaluation.eval_sample_packing
        return Flash(self._window(layer), packed=packed, packed_eval=packed_eval)

    def varlen(self) -> bool:
        """Return whether packed rows go to the variable-length kernel: narrow heads, and no sliding window."""
        model, run = self.model, self.run
        sliding = model.sliding_window and (not model.layer_types or any("sliding" in k for k in model.layer_types))
        return (
            run.kernels.varlen_sdpa
            and run.shapes.packing_rows != "none"
            and model.head_dim <= VARLEN_WIDEST
            and not sliding
        )

    def rotation(self, layer: int) -> Rotation | None:
        """Return how queries and keys are turned, in layers where they are."""
        if layer in self.model.nope_layers or self.model.rotary_fraction == 0:
            return None
        if self.norms.own_layers:
            return turn_by_position
        # attention that is rewritten for LoRA kernels keeps the rotation it had then, before Liger's was put in
        rewritten = not {"qkv", "o"}.isdisjoint(self.run.adapter.fused_lora)
        if "rope" in self.run.kernels.liger and self.model.rotary_fraction == 1 and not rewritten:
            return rotate_in_place
        return ROTATIONS[self.facts.rotation or ("part" if self.model.rotary_fraction < 1 else "whole")]

    def attention(self, start: str, layer: int) -> AttentionLayer:
        """Return the attention of the block whose names start so."""
        model, facts = self.model, self.facts
        dropout = model.hidden_dropout if facts.drops_inside else 0.0
        heads = Heads(query=model.num_attention_heads, kv=model.num_key_value_heads, width=model.head_dim)
        made = [projection(self.weights, f"{start}{name}") for name in facts.attention]
        if facts.fused_attention is not None:
            return FUSED_ATTENTION[facts.fused_attention](
                heads=heads,
                qkv=made[0],
                o=made[1],
                kernel=self.kernel(start, layer),
                rotate=self.rotation(layer),
                **({"dropout": dropout} if facts.drops_inside else {}),
            )
        q_norm, k_norm = [self.norms.norm_or_none(f"{start}self_attn.{name}") for name in facts.head_norms]
        rotation = self.rotation(layer)
        if self.model.size("relative_positions"):
            return self._disentangled(heads, made)
        if self.norms.own_layers and q_norm is not None:
            q_norm, k_norm, rotation = None, None, turn_normed
        return Attention(
            heads=heads,
            q=made[0],
            k=made[1],
            v=made[2],
            o=self.fused.out(start) or made[3],
            kernel=self.kernel(start, layer),
            rotate=rotation,
            q_norm=q_norm,
            k_norm=k_norm,
            norm_whole=model.qk_norm == "full",
            norms_run=facts.head_norms_run,
            dropout=dropout,
            qkv=self.fused.qkv(start),
        )

    def _disentangled(self, heads: Heads, made: list[Projection]) -> AttentionLayer:
        """DeBERTa's attention."""
        from vramwise.ghost.model.stacks import Disentangled  # only these models need it

        q, k, v, o = made
        model = self.model
        return Disentangled(
            attention=Attention(heads=heads, q=q, k=k, v=v, o=o, kernel=Eager(), rotate=None),
            rate=model.attention_dropout,
            hidden_rate=model.hidden_dropout,
        )

    def mixer_word(self, layer: int) -> Mixer | None:
        """Return the word for what replaces attention in a layer, if something does."""
        kinds = self.model.layer_types
        return self.facts.mixers.get(kinds[layer] if kinds else "full_attention")

    def mixer(self, start: str, layer: int) -> AttentionLayer:
        """Attention, or what replaces it in this layer."""
        word = self.mixer_word(layer)
        if word is None:
            return self.attention(start, layer)
        names = self.weights
        parts = Parts(
            model=self.model,
            linear=lambda name: projection(names, f"{start}{name}"),
            weight=lambda name: names.get(f"{start}{name}"),
            norm=lambda name: self.norms.norm_or_none(f"{start}{name}"),
            rows=lambda name: self.weights.rows(f"{start}{name}.weight"),
            has=lambda name: self.weights.rows(f"{start}{name}.weight") > 0,
            kernel=self.kernel(start, layer),
            rotate=self.rotation(layer),
            attention=lambda: self.attention(start, layer),
            fused=("state space" if "state" in word else "delta rule") in self.run.kernels.mixer_kernels,
        )
        return of_kind(word, parts)
