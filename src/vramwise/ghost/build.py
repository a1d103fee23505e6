"""From a `ModelSpec` and the loaded weights to a model of ghost layers, by what its family's block facts say."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from vramwise.ghost.build_attention import Attentions
from vramwise.ghost.build_feed_forward import FeedForwards
from vramwise.ghost.build_layers import FusedKernels, Norms, projection
from vramwise.ghost.checkpointing import Checkpoint, non_reentrant, reentrant
from vramwise.ghost.model.block import (
    KeepingBlock,
    LayerInput,
    LayerInputs,
    NeoxBlock,
    OnePart,
    ParallelBlock,
    PostNormBlock,
    PreNormBlock,
    ScaledSandwichBlock,
    passed_on,
)
from vramwise.ghost.model.causal_lm import Block, Body
from vramwise.ghost.model.linear import Linear, Projection
from vramwise.ghost.model.mlp import GatedMlp
from vramwise.ghost.model.norms import Norm, unchanged
from vramwise.ghost.ops.fused_layers import FIRST_POSITIONS
from vramwise.ghost.sharding.fsdp_units import Units
from vramwise.ghost.sharding.gathering import Gathering
from vramwise.ghost.weights import Weights
from vramwise.models.families import layout_of
from vramwise.models.families.base import ParallelOrder

if TYPE_CHECKING:
    from vramwise.ghost.model.streams import Streams

# Where encoders and Bloom have them.
_TABLE_NORMS = ("LayerNorm", "norm", "word_embeddings_layernorm")
_WIDER = ("embeddings_project", "encoder.embedding_hidden_mapping_in")


class Builder:
    """Builds one model; knows its weights and the run."""

    def __init__(self, weights: Weights, units: Units | None = None) -> None:
        self.weights = weights
        self.model = weights.model
        self.run = weights.run
        self.facts = weights.block
        self.layout = layout_of(weights.model)
        self.layers = self.layout.inside(weights.model, self.layout.layers)
        self.embedding = self.layout.inside(weights.model, self.layout.embedding)
        self.gathering = Gathering(weights, units)
        self.fused = FusedKernels(weights)
        self.norms = Norms(weights)
        self.attentions = Attentions(weights, self.norms, self.fused)
        self.feed_forwards = FeedForwards(weights, self.norms, self.fused)

    def body(self) -> Body:
        """Return the model without its head."""
        if self.model.trace is not None:
            from vramwise.ghost.traced.build import traced_body  # few models are traced

            return traced_body(self, self.model.trace)
        model, run, facts = self.model, self.run, self.facts
        if model.reads == "both":
            from vramwise.ghost.build_stacks import Stacks  # few models have two stacks

            return Stacks(self).body()
        norm: Norm = unchanged
        if self.layout.final_norm:
            norm = self.gathering.root(self.norms.norm(self.layout.inside(model, self.layout.final_norm)))
        blocks = [self.gathering.block(layer, self.block(layer)) for layer in range(model.num_hidden_layers)]
        checkpoint = self.checkpoint()
        kinds, windows = self.windows()
        return Body(
            embed=self.weights.by_name[f"{self.embedding}.weight"],
            blocks=blocks,
            norm=norm,
            rotary_dim=int(model.head_dim * model.rotary_fraction),
            attention="eager" if facts.written_out else run.kernels.attn_implementation,
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
            masked=not (run.kernels.attn_implementation == "sdpa" and self.attentions.varlen()),
            positions=self.weights.get(f"{self.layout.positions}.weight") if self.layout.positions else None,
            dropout=model.hidden_dropout if facts.embedding_dropout == "hidden" else model.embedding_dropout,
            drops_embeddings=facts.drops_embeddings,
            **self._before_blocks(),
            layer_inputs=self._layer_inputs(),
            streams=self._streams(),
            kept_positions=self._kept_positions(),
            scratch_bytes=self.fused.scratch_bytes(),
            masks_samples=self.weights.compiled,
            usual_samples=run.batch.micro_batch_size if run.shapes.packing_fill == "single" else 2,
            always_masked=facts.undeclared_groups and run.kernels.attn_implementation == "sdpa",
        )

    def _before_blocks(self) -> dict[str, Any]:
        """Return what encoders have between the token table and the blocks: token types, a norm, a projection."""
        if self.layout.after_tables is None:
            return {}
        start, names = self.embedding.rpartition(".")[0], self.weights
        norm = next((f"{start}.{name}" for name in _TABLE_NORMS if names.get(f"{start}.{name}.weight")), None)
        wider = next((name for name in _WIDER if names.rows(f"{name}.weight")), None)
        return {
            "token_types": names.get(f"{start}.token_type_embeddings.weight"),
            "table_norm": self.norms.norm(norm) if norm else None,
            "wider": projection(names, wider) if wider else None,
            "distances": names.get("encoder.rel_embeddings.weight"),
            "distances_norm": self.norms.norm_or_none("encoder.LayerNorm"),
        }

    @property
    def input_grads(self) -> bool:
        """Whether a hook makes the embeddings' output want a gradient."""
        run = self.run
        adapted = run.adapter.kind is not None or bool(run.adapter.unfrozen)
        return run.adapter.embeddings_want_grads or (run.savings.recompute and adapted)

    def _kept_positions(self) -> int:
        """Positions that tables are kept for: all where batches name theirs, else those that a row needs."""
        if not self.norms.own_layers:
            return 0
        most = self.model.max_position_embeddings
        return most if self.run.shapes.packing_rows != "none" else min(most, FIRST_POSITIONS)

    def trained_blocks(self) -> tuple[bool, ...]:
        """Return which blocks have parameters that are trained, where only some are meant to."""
        if self.run.adapter.trained_blocks is None:
            return ()
        names = [item.name for item in self.weights.trainable()]
        numbers = range(self.model.num_hidden_layers)
        return tuple([any(name.startswith(f"{self.layers}.{number}.") for name in names) for number in numbers])

    def checkpoint(self) -> Checkpoint | None:
        """Return how blocks are checkpointed, if they are."""
        run = self.run
        if not run.savings.recompute:
            return None
        return reentrant if run.savings.checkpointing_reentrant else non_reentrant

    def windows(self) -> tuple[tuple[str, ...], dict[str, int | None]]:
        """Return the kind of each layer, and each kind's window. A model of one kind of layer makes one mask."""
        model = self.model
        if model.layer_types:
            kinds = tuple("sliding" if "sliding" in kind else "full" for kind in model.layer_types)
            windows: dict[str, int | None] = {"full": None}
            if "sliding" in kinds:
                windows["sliding"] = model.sliding_window
            return kinds, windows
        return (), {"full": model.sliding_window}

    def _layer_inputs(self) -> LayerInputs | None:
        """Return what makes inputs for every layer (Gemma 3n and 4)."""
        start = self.embedding.rpartition(".")[0]
        table = self.weights.get(f"{start}.embed_tokens_per_layer.weight")
        if table is None:
            return None
        return LayerInputs(
            table=table,
            projection=projection(self.weights, f"{start}.per_layer_model_projection"),
            norm=self.norms.norm(f"{start}.per_layer_projection_norm"),
            layers=self.model.num_hidden_layers,
            scaled_in_place=bool(self.model.size("streams")),
        )

    def _streams(self) -> Streams | None:
        """Return what spreads hidden states over streams and joins them (Gemma 3n)."""
        start, count = self.embedding.rpartition(".")[0], self.model.size("streams")
        if not count:
            return None
        from vramwise.ghost.model.streams import Streams  # few models have streams

        apart, together = [
            tuple([projection(self.weights, f"{start}.{name}.{number}") for number in range(count - 1)])
            for name in ("altup_projections", "altup_unembed_projections")
        ]
        return Streams(apart=apart, together=together)

    def head(self) -> Projection:
        """Return the output projection; tied ones use the embedding's weight."""
        head: Projection
        name = "lm_head" if self.model.trace is None else self.model.trace.head
        if self.model.tie_word_embeddings and f"{name}.weight" not in self.weights.by_name:
            embed = self.weights.by_name[f"{self.embedding}.weight"]
            head = Linear(embed, self.weights.get(f"{name}.bias"))
        else:
            head = projection(self.weights, name)
        return self.gathering.head(head)

    def block(self, layer: int) -> Block:
        """One block: with a parallel residual where the model has one and its family knows it, else in its order."""
        start = self.layout.start(self.model, layer)
        if self.attentions.mixer_word(layer) == "skipped" and self.facts.order != "one part":
            return passed_on
        if self.facts.order == "one part":
            return self._single(start, layer)
        if self.facts.order == "joined":
            from vramwise.ghost.build_stacks import joined_block  # only encoders have such blocks

            return joined_block(self, start, layer)
        attention, mlp = self.attentions.mixer(start, layer), self.feed_forwards.mlp(start, layer)
        parts: dict[str, Any] = {"label": f"layers.{layer}", "attention": attention, "mlp": mlp}
        facts, model = self.facts, self.model
        if facts.parallel is not None and model.parallel_residual:
            return self._parallel_block(start, facts.parallel, parts)
        parts |= {f"norm{number}": self._norm(f"{start}{name}") for number, name in enumerate(facts.norms, 1)}
        if facts.order == "sandwich":
            names = ("norm1", "after1", "norm2", "after2")
            before = {name: parts.pop(f"norm{number}") for number, name in enumerate(names, 1)}
            return PreNormBlock(**parts, **before)
        if facts.order == "streams":
            return self._streams_block(start, layer, parts)
        if facts.order == "sandwich, scaled":
            return ScaledSandwichBlock(**parts, input=self._layer_input(start))
        if facts.order == "post":
            return PostNormBlock(**parts)
        dropout = 0.0 if facts.drops_inside else model.hidden_dropout
        if facts.order == "pre, kept":
            return KeepingBlock(**parts, attention_dropout=model.attention_dropout, dropout=dropout)
        return PreNormBlock(**parts, scaled=facts.scaled_residuals, dropout=dropout)

    def _norm(self, name: str) -> Norm:
        """Return a norm of a block; ModernBERT's first one lacks one."""
        left_out = self.model.reads == "encoder" and self.weights.get(f"{name}.weight") is None
        return unchanged if left_out else self.norms.norm(name)

    def _layer_input(self, start: str) -> LayerInput | None:
        if not self.model.size("layer_input"):
            return None
        return LayerInput(
            gate=projection(self.weights, f"{start}per_layer_input_gate"),
            projection=projection(self.weights, f"{start}per_layer_projection"),
            norm=self.norms.norm(f"{start}post_per_layer_input_norm"),
        )

    def _streams_block(self, start: str, layer: int, parts: dict[str, Any]) -> Block:
        from vramwise.ghost.model.streams import Altup, Laurel, SparseGate, StreamsBlock  # few models have streams

        linear, weights = partial(projection, self.weights), self.weights
        own, mlp = self._layer_input(start), parts["mlp"]
        assert own is not None
        if layer < self.model.size("sparse_layers") and isinstance(mlp, GatedMlp):
            parts["mlp"] = GatedMlp(SparseGate(mlp.gate), mlp.up, mlp.down)
        altup = Altup(
            norm=self.norms.norm(f"{start}altup.router_norm"),
            router=linear(f"{start}altup.modality_router"),
            prediction=linear(f"{start}altup.prediction_coefs"),
            correction=linear(f"{start}altup.correction_coefs"),
            output_scale=weights.by_name[f"{start}altup.correct_output_scale"],
        )
        laurel = Laurel(
            left=linear(f"{start}laurel.linear_left"),
            right=linear(f"{start}laurel.linear_right"),
            norm=self.norms.norm(f"{start}laurel.post_laurel_norm"),
        )
        return StreamsBlock(**parts, altup=altup, laurel=laurel, input=own)

    def _single(self, start: str, layer: int) -> Block:
        """Return a block of one part: attention or what replaces it, or a feed-forward layer."""
        norm, label = self.norms.norm(f"{start}{self.facts.norms[0]}"), f"layers.{layer}"
        if self.attentions.mixer_word(layer) == "skipped":
            return OnePart(label=label, norm=norm, mlp=self.feed_forwards.mlp(start, layer))
        return OnePart(label=label, norm=norm, attention=self.attentions.mixer(start, layer))

    def _parallel_block(self, start: str, order: ParallelOrder, parts: dict[str, Any]) -> Block:
        """Return one residual around both parts. One norm feeds them, or two where the model has those."""
        dropout = self.model.hidden_dropout
        first, second = self.facts.norms[:2]
        if order == "two norms":
            norms = self.norms.norm(f"{start}{first}"), self.norms.norm(f"{start}{second}")
            return NeoxBlock(**parts, norm1=norms[0], norm2=norms[1], dropout=dropout)
        beside = None
        if self.facts.parallel_norms is not None:
            beside = self.norms.norm_or_none(f"{start}{self.facts.parallel_norms[1]}")
            first = self.facts.parallel_norms[0] if beside is not None else first
        return ParallelBlock(
            **parts, norm1=self.norms.norm(f"{start}{first}"), norm2=beside, order=order, dropout=dropout
        )
