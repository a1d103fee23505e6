"""From a `ModelSpec` and the loaded weights to a model of ghost layers, by what its family's block facts say."""

from __future__ import annotations

from typing import Any

from vramwise.errors import VramwiseError
from vramwise.families import layout_of
from vramwise.families.base import Mixer, ParallelOrder
from vramwise.ghost.block_words import FUSED_ATTENTION, NORMS, ROTATIONS
from vramwise.ghost.checkpointing import Checkpoint, non_reentrant, reentrant
from vramwise.ghost.dtypes import BY_NAME
from vramwise.ghost.fused_kernels import FusedKernels
from vramwise.ghost.mixers import of_kind
from vramwise.ghost.mixers.experts import own_mixture
from vramwise.ghost.mixers.parts import Parts
from vramwise.ghost.model.attention import (
    Attention,
    AttentionLayer,
    Heads,
)
from vramwise.ghost.model.block import (
    KeepingBlock,
    Mlp,
    NeoxBlock,
    OnePart,
    ParallelBlock,
    PostNormBlock,
    PreNormBlock,
    SandwichBlock,
    passed_on,
)
from vramwise.ghost.model.causal_lm import Block, Body
from vramwise.ghost.model.compiled import CompiledGatedMlp, CompiledNorm
from vramwise.ghost.model.fused_lora import FusedLoraMlp
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
from vramwise.ghost.model.liger import LigerFusedGatedMlp, LigerGatedMlp, LigerNorm
from vramwise.ghost.model.linear import Linear, Projection
from vramwise.ghost.model.mlp import DroppedMlp, FusedGatedMlp, GatedMlp, PlainMlp, activation_named
from vramwise.ghost.model.moe import Experts, ExpertWeight, MoeMlp, PackedExperts, Router
from vramwise.ghost.model.norms import LayerNorm, Norm
from vramwise.ghost.model.rotary import Rotation, turn_normed
from vramwise.ghost.ops.fused_layers import FIRST_POSITIONS, turn_by_position
from vramwise.ghost.ops.liger import rotate_in_place
from vramwise.ghost.projections import projection
from vramwise.ghost.sharding.gathering import Gathering
from vramwise.ghost.tiling import TiledMlp
from vramwise.ghost.weights import Weights


class Builder:
    """Builds one model; knows its weights and the run."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.model = weights.model
        self.run = weights.run
        self.facts = weights.block
        self.layout = layout_of(weights.model)
        self.layers = self.layout.inside(weights.model, self.layout.layers)
        self.embedding = self.layout.inside(weights.model, self.layout.embedding)
        self.gathering = Gathering(weights)
        self.fused = FusedKernels(weights)

    def body(self) -> Body:
        """The model without its head."""
        if self.model.trace is not None:
            from vramwise.ghost.traced.build import traced_body  # few models are traced

            return traced_body(self, self.model.trace)
        model, run, facts = self.model, self.run, self.facts
        norm = self.gathering.root(self.norm(self.layout.inside(model, self.layout.final_norm)))
        blocks = [self.gathering.block(layer, self.block(layer)) for layer in range(model.num_hidden_layers)]
        checkpoint = self.checkpoint()
        kinds, windows = self.windows()
        return Body(
            embed=self.weights.by_name[f"{self.embedding}.weight"],
            blocks=blocks,
            norm=norm,
            rotary_dim=int(model.head_dim * model.rotary_fraction),
            attention=run.kernels.attn_implementation,
            checkpoint=checkpoint,
            input_grads=self.input_grads,
            scaled_embedding=facts.scaled_embeddings == "inside",
            scaled_after=facts.scaled_embeddings == "after",
            masks_by_kind=facts.masks_by_kind,
            windows=windows,
            kinds=kinds,
            local_tables=facts.local_tables,
            wide_tables=facts.tables == "in fp32",
            half_tables=facts.tables == "half as wide",
            tables_by_product=run.kernels.rotary_by_product,
            packed=run.shapes.packing_rows != "none",
            packed_eval=run.evaluation.eval_sample_packing,
            trained=self.trained_blocks(),
            masked=not (run.kernels.attn_implementation == "sdpa" and self.varlen()),
            positions=self.weights.get(f"{self.layout.positions}.weight") if self.layout.positions else None,
            dropout=model.hidden_dropout if facts.embedding_dropout == "hidden" else model.embedding_dropout,
            drops_embeddings=facts.drops_embeddings,
            layer_inputs=self.weights.get(f"{self.embedding.rpartition('.')[0]}.embed_tokens_per_layer.weight"),
            kept_positions=self._kept_positions(),
            scratch_bytes=self.fused.scratch_bytes(),
            masks_samples=self.weights.compiled,
            usual_samples=run.batch.micro_batch_size if run.shapes.packing_fill == "single" else 2,
            always_masked=facts.undeclared_groups and run.kernels.attn_implementation == "sdpa",
        )

    @property
    def input_grads(self) -> bool:
        """Whether a hook makes the embeddings' output want a gradient."""
        run = self.run
        adapted = run.adapter.kind is not None or bool(run.adapter.unfrozen)
        return run.adapter.embeddings_want_grads or (run.savings.recompute and adapted)

    @property
    def own_layers(self) -> bool:
        """Whether the trainer's own kernels run the parts of a block."""
        return self.model.model_type in self.run.kernels.fused_layers

    def _kept_positions(self) -> int:
        """Positions that tables are kept for: all where batches name theirs, else those that a row needs."""
        if not self.own_layers:
            return 0
        most = self.model.max_position_embeddings
        return most if self.run.shapes.packing_rows != "none" else min(most, FIRST_POSITIONS)

    def trained_blocks(self) -> tuple[bool, ...]:
        """Which blocks have parameters that are trained, where only some are meant to."""
        if self.run.adapter.trained_blocks is None:
            return ()
        names = [item.name for item in self.weights.trainable()]
        numbers = range(self.model.num_hidden_layers)
        return tuple([any(name.startswith(f"{self.layers}.{number}.") for name in names) for number in numbers])

    def checkpoint(self) -> Checkpoint | None:
        """How blocks are checkpointed, if they are."""
        run = self.run
        if not run.savings.recompute:
            return None
        return reentrant if run.savings.checkpointing_reentrant else non_reentrant

    def windows(self) -> tuple[tuple[str, ...], dict[str, int | None]]:
        """The kind of each layer, and each kind's window. A model of one kind of layer makes one mask."""
        model = self.model
        if model.layer_types:
            kinds = tuple("sliding" if "sliding" in kind else "full" for kind in model.layer_types)
            windows: dict[str, int | None] = {"full": None}
            if "sliding" in kinds:
                windows["sliding"] = model.sliding_window
            return kinds, windows
        return (), {"full": model.sliding_window}

    def head(self) -> Projection:
        """The output projection; tied ones use the embedding's weight."""
        head: Projection
        name = "lm_head" if self.model.trace is None else self.model.trace.head
        if self.model.tie_word_embeddings and f"{name}.weight" not in self.weights.by_name:
            embed = self.weights.by_name[f"{self.embedding}.weight"]
            head = Linear(embed, self.weights.get(f"{name}.bias"))
        else:
            head = projection(self.weights, name)
        return self.gathering.head(head)

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

    def _norm_or_none(self, name: str) -> Norm | None:
        return self.norm(name) if self.weights.get(f"{name}.weight") is not None else None

    def _window(self, layer: int) -> int | None:
        """How many keys a query of this layer meets at most; None: all before it."""
        kinds = self.model.layer_types
        return self.model.sliding_window if not kinds or "sliding" in kinds[layer] else None

    def kernel(self, start: str, layer: int) -> Kernel:
        """The attention implementation of the run."""
        model = self.model
        if self.own_layers:
            packed = self.run.shapes.packing_rows != "none"
            packed_eval = self.run.evaluation.eval_sample_packing
            return RowsAttention(self.run.kernels.packed_attention, packed=packed, packed_eval=packed_eval)
        sinks = self.weights.get(f"{start}self_attn.sinks")
        if self.run.kernels.attn_implementation == "eager" and sinks is not None:
            return SinkEager(sinks, model.attention_dropout)
        if self.run.kernels.attn_implementation == "eager":
            return Eager(model.attn_logit_softcapping, model.attention_dropout)
        if self.run.kernels.attn_implementation == "sdpa":
            if self.varlen():
                return VarlenSdpa(packed_eval=self.run.evaluation.eval_sample_packing)
            return MathSdpa() if self.facts.undeclared_groups else Sdpa()
        packed, packed_eval = self.run.shapes.packing_rows != "none", self.run.evaluation.eval_sample_packing
        return Flash(self._window(layer), packed=packed, packed_eval=packed_eval)

    def varlen(self) -> bool:
        """Whether packed rows go to the variable-length kernel: narrow heads, and no sliding window."""
        model, run = self.model, self.run
        sliding = model.sliding_window and (not model.layer_types or any("sliding" in k for k in model.layer_types))
        return (
            run.kernels.varlen_sdpa
            and run.shapes.packing_rows != "none"
            and model.head_dim <= VARLEN_WIDEST
            and not sliding
        )

    def rotation(self, layer: int) -> Rotation | None:
        """How queries and keys are turned, in layers where they are."""
        if layer in self.model.nope_layers or self.model.rotary_fraction == 0:
            return None
        if self.own_layers:
            return turn_by_position
        # attention that is rewritten for LoRA kernels keeps the rotation it had then, before Liger's was put in
        rewritten = not {"qkv", "o"}.isdisjoint(self.run.adapter.fused_lora)
        if "rope" in self.run.kernels.liger and self.model.rotary_fraction == 1 and not rewritten:
            return rotate_in_place
        return ROTATIONS[self.facts.rotation or ("part" if self.model.rotary_fraction < 1 else "whole")]

    def attention(self, start: str, layer: int) -> AttentionLayer:
        """The attention of the block whose names start so."""
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
        q_norm, k_norm = [self._norm_or_none(f"{start}self_attn.{name}") for name in facts.head_norms]
        rotation = self.rotation(layer)
        if self.own_layers and q_norm is not None:
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

    def _mixer(self, layer: int) -> Mixer | None:
        """The word for what stands in attention's place in a layer, if something else does."""
        kinds = self.model.layer_types
        return self.facts.mixers.get(kinds[layer] if kinds else "full_attention")

    def mixer(self, start: str, layer: int) -> AttentionLayer:
        """Attention, or what stands in its place in this layer."""
        word = self._mixer(layer)
        if word is None:
            return self.attention(start, layer)
        names = self.weights
        parts = Parts(
            model=self.model,
            linear=lambda name: projection(names, f"{start}{name}"),
            weight=lambda name: names.get(f"{start}{name}"),
            norm=lambda name: self._norm_or_none(f"{start}{name}"),
            rows=lambda name: self._rows(f"{start}{name}.weight"),
            has=lambda name: self._rows(f"{start}{name}.weight") > 0,
            kernel=self.kernel(start, layer),
            rotate=self.rotation(layer),
            attention=lambda: self.attention(start, layer),
            fused=("state space" if "state" in word else "delta rule") in self.run.kernels.mixer_kernels,
        )
        return of_kind(word, parts)

    def _rows(self, name: str) -> int:
        """How many rows a weight has, quantised or not; 0 where there is none."""
        found = self.weights.get(name)
        return (self.weights.shapes.get(name) or (0,))[0] if found is None else found.shape[0]

    def mlp(self, start: str, layer: int) -> Mlp:
        """The feed-forward part of a block, with dropout where that is a part of it."""
        made = self._tiled(self._mlp(start, layer), f"{start}{self.facts.feed_forward}.")
        rate = self.model.hidden_dropout
        return DroppedMlp(made, rate) if self.facts.drops_inside and rate else made

    def _mlp(self, start: str, layer: int) -> Mlp:
        model = self.model
        place = f"{start}{self.facts.feed_forward}."
        if model.num_experts and layer not in model.dense_layers:
            return self._mixture(place)
        if self._rows(f"{start}shared_mlp.input_linear.weight"):  # Granite 4 without experts
            return FusedGatedMlp(
                *[projection(self.weights, f"{start}shared_mlp.{n}_linear") for n in ("input", "output")]
            )
        if model.fused_gate_up:
            fused = LigerFusedGatedMlp if "glu_activation" in self.run.kernels.liger else FusedGatedMlp
            return fused(*[projection(self.weights, f"{place}{name}") for name in ("gate_up_proj", "down_proj")])
        if not model.gated_mlp:
            up, down = self.facts.plain_mlp
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
        """A mixture of experts."""
        model, by_name = self.model, self.weights.by_name
        facts = self.facts.mixture
        if facts is not None and facts.runs != "gated":
            return own_mixture(self, place, facts)
        if facts is None:
            raise VramwiseError(f"a mixture of experts in a block of the family '{model.family}' is not supported")
        router = f"{place}{facts.router}"
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
            router=Router(
                weight=by_name[f"{router}.weight"],
                bias=self.weights.get(f"{router}.bias"),
                top_k=model.num_experts_per_tok,
                normalised=facts.normalised,
                cast_back=facts.cast_back,
                softmax_last=facts.softmax_last,
                wide=facts.wide_router,
            ),
            experts=Experts(
                gate_up=self.expert_weight(f"{place}experts.gate_up_proj"),
                down=self.expert_weight(f"{place}experts.down_proj"),
                hidden=model.hidden_size,
                intermediate=model.moe_intermediate_size,
                biased=f"{place}experts.gate_up_proj_bias" in by_name,
                clamped=facts.clamped,
                gate_up_lora=self.weights.adapters.get(f"{place}experts.gate_up_proj"),
                down_lora=self.weights.adapters.get(f"{place}experts.down_proj"),
                masks=self.run.kernels.expert_masks,
            ),
            shared=shared,
            shared_gate=projection(self.weights, f"{place}shared_expert_gate") if has_gate else None,
        )

    def expert_weight(self, name: str) -> ExpertWeight:
        """The weight of experts, held quantised where the run does so."""
        shape, bits = self.weights.shapes.get(name), self.run.loading.expert_quantization
        if shape is None or bits is None:
            return self.weights.by_name[name]
        return PackedExperts(shape=shape, bits=bits, dtype=BY_NAME[self.run.precision.weights_dtype])

    def block(self, layer: int) -> Block:
        """One block: with a parallel residual where the model has one and its family knows it, else in its order."""
        start = f"{self.layers}.{layer}."
        if self._mixer(layer) == "skipped" and self.facts.order != "one part":
            return passed_on
        if self.facts.order == "one part":
            return self._single(start, layer)
        attention, mlp = self.mixer(start, layer), self.mlp(start, layer)
        parts: dict[str, Any] = {"label": f"layers.{layer}", "attention": attention, "mlp": mlp}
        facts, model = self.facts, self.model
        if facts.parallel is not None and model.parallel_residual:
            return self._parallel_block(start, facts.parallel, parts)
        parts |= {f"norm{number}": self.norm(f"{start}{name}") for number, name in enumerate(facts.norms, 1)}
        if facts.order == "sandwich":
            return SandwichBlock(**parts)
        if facts.order == "post":
            return PostNormBlock(**parts)
        dropout = 0.0 if facts.drops_inside else model.hidden_dropout
        if facts.order == "pre, kept":
            return KeepingBlock(**parts, attention_dropout=model.attention_dropout, dropout=dropout)
        return PreNormBlock(**parts, scaled=facts.scaled_residuals, dropout=dropout)

    def _single(self, start: str, layer: int) -> Block:
        """A block of one part: attention or what stands in its place, or a feed-forward layer."""
        norm, label = self.norm(f"{start}{self.facts.norms[0]}"), f"layers.{layer}"
        if self._mixer(layer) == "skipped":
            return OnePart(label=label, norm=norm, mlp=self.mlp(start, layer))
        return OnePart(label=label, norm=norm, attention=self.mixer(start, layer))

    def _parallel_block(self, start: str, order: ParallelOrder, parts: dict[str, Any]) -> Block:
        """One residual around both parts. One norm feeds them, or two where the model has those."""
        dropout = self.model.hidden_dropout
        first, second = self.facts.norms[:2]
        if order == "two norms":
            norms = self.norm(f"{start}{first}"), self.norm(f"{start}{second}")
            return NeoxBlock(**parts, norm1=norms[0], norm2=norms[1], dropout=dropout)
        beside = None
        if self.facts.parallel_norms is not None:
            beside = self._norm_or_none(f"{start}{self.facts.parallel_norms[1]}")
            first = self.facts.parallel_norms[0] if beside is not None else first
        return ParallelBlock(**parts, norm1=self.norm(f"{start}{first}"), norm2=beside, order=order, dropout=dropout)
