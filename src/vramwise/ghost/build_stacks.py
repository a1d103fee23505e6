"""Builds encoders' blocks, and models of an encoder and a decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise.ghost.build_layers import projection
from vramwise.ghost.model.attention import Heads
from vramwise.ghost.model.causal_lm import Block
from vramwise.ghost.model.encoder_decoder import Audio, EncoderDecoder, Tokens
from vramwise.ghost.model.mlp import PlainMlp, activation_named
from vramwise.ghost.model.norms import Norm, unchanged
from vramwise.ghost.model.stacks import DroppedInside, FeedForward, PartsBlock, SelfPart, StackAttention
from vramwise.ghost.tape import Parameter
from vramwise.models.families.seq2seq import place

if TYPE_CHECKING:
    from vramwise.ghost.build import Builder


def joined_block(builder: Builder, start: str, layer: int) -> PartsBlock:
    """Return an encoder's block: a norm after each sum."""
    attention = SelfPart(attention=builder.attentions.mixer(start, layer))
    mlp = FeedForward(mlp=builder.feed_forwards.mlp(start, layer))
    norms = tuple([builder.norms.norm(f"{start}{name}") for name in builder.facts.norms])
    rate = builder.model.hidden_dropout
    return PartsBlock(label=f"layers.{layer}", parts=(attention, mlp), norms=norms, joined=True, dropout=rate)


class Stacks:
    """Builds a model of two stacks."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.model = builder.model
        self.weights = builder.weights
        self.t5 = bool(self.model.size("buckets"))
        self.speech = bool(self.model.size("num_mel_bins"))
        self.written_out = builder.run.kernels.attn_implementation == "eager"

    def body(self) -> EncoderDecoder:
        """Return the model without its head."""
        builder, model = self.builder, self.model
        count = model.size("encoder_layers")
        rate = model.hidden_dropout
        return EncoderDecoder(
            embed=builder.weights.by_name[f"{builder.embedding}.weight"],
            blocks=[builder.gathering.block(layer, self._block(layer)) for layer in range(model.num_hidden_layers)],
            norm=unchanged,
            rotary_dim=0,
            attention="eager" if self.written_out else "sdpa",
            checkpoint=builder.checkpoint(),
            input_grads=builder.input_grads,
            encoder_layers=count,
            starts=(self._audio() if self.speech else self._tokens("encoder"), self._tokens("decoder")),
            ends=(self._end("encoder"), self._end("decoder")),
            end_rate=rate if self.t5 else 0.0,
            heads=model.num_attention_heads,
            tables=(self._distances("encoder"), self._distances("decoder")),
        )

    def _tokens(self, stack: str) -> Tokens:
        start = f"model.{stack}"
        return Tokens(
            table=self.weights.by_name[f"{self.builder.embedding}.weight"],
            positions=self.weights.get(f"{start}.embed_positions.weight"),
            norm=self.builder.norms.norm_or_none(f"{start}.layernorm_embedding"),
            rate=self.model.hidden_dropout,
        )

    def _audio(self) -> Audio:
        by_name = self.weights.by_name
        names = [f"model.encoder.{name}" for name in ("conv1", "conv2")]
        return Audio(
            convolutions=tuple([(by_name[f"{name}.weight"], by_name[f"{name}.bias"]) for name in names]),
            positions=by_name["model.encoder.embed_positions.weight"],
            rate=self.model.hidden_dropout,
        )

    def _end(self, stack: str) -> Norm | None:
        name = f"{stack}.final_layer_norm" if self.t5 else f"model.{stack}.layer_norm"
        return self.builder.norms.norm_or_none(name)

    def _distances(self, stack: str) -> Parameter | None:
        return self.weights.get(f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight")

    def _block(self, layer: int) -> Block:
        if self.t5:
            stack, number = place(self.model, layer, "encoder", "decoder")
            start = f"{stack}.block.{number}.layer"
            names = ["SelfAttention", "EncDecAttention"][: 1 if stack == "encoder" else 2]
            attentions = [f"{start}.{part}.{name}" for part, name in enumerate(names)]
            norms = [f"{start}.{part}.layer_norm" for part in range(len(names) + 1)]
            mlp = f"{start}.{len(names)}."
        else:
            stack, number = place(self.model, layer, "model.encoder", "model.decoder")
            mlp = f"{stack}.layers.{number}."
            attentions = [f"{mlp}{name}" for name in ("self_attn", "encoder_attn")[: 1 if "encoder" in stack else 2]]
            norms = [*(f"{name}_layer_norm" for name in attentions), f"{mlp}final_layer_norm"]
        parts = [self._attention(name, across=bool(number)) for number, name in enumerate(attentions)]
        return PartsBlock(
            label=f"layers.{layer}",
            parts=(*parts, FeedForward(mlp=self._mlp(mlp))),
            norms=tuple([self.builder.norms.norm(name) for name in norms]),
            joined=self.builder.facts.order == "joined",
            dropout=self.model.hidden_dropout,
        )

    def _attention(self, start: str, *, across: bool) -> StackAttention:
        model = self.model
        names = ("q", "k", "v", "o") if self.t5 else ("q_proj", "k_proj", "v_proj", "out_proj")
        q, k, v, o = [projection(self.weights, f"{start}.{name}") for name in names]
        return StackAttention(
            heads=Heads(query=model.num_attention_heads, kv=model.num_attention_heads, width=model.head_dim),
            q=q,
            k=k,
            v=v,
            o=o,
            across=across,
            copies=self.speech,
            written_out=self.written_out,
            scaled=not self.t5,
            rate=model.attention_dropout or (model.hidden_dropout if self.t5 else 0.0),
        )

    def _mlp(self, start: str) -> PlainMlp | DroppedInside:
        model, facts = self.model, self.builder.facts
        start = f"{start}{facts.feed_forward}." if facts.feed_forward else start
        act = activation_named(model.activation)
        made = [
            projection(self.weights, f"{start}{name}")
            for name in (facts.gated_mlp if model.gated_mlp else facts.plain_mlp)
        ]
        if not self.t5:
            return PlainMlp(made[0], made[1], act)
        gate = made[0] if model.gated_mlp else None
        return DroppedInside(up=made[-2], down=made[-1], act=act, gate=gate, rate=model.hidden_dropout)
