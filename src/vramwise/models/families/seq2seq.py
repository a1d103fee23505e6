"""Models of an encoder and a decoder that attends to it: T5, BART, Whisper. The encoder's layers come first.

Each layer names its parameters in full. What stands before a stack's first layer or behind its last one is listed with
that layer.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.models.families.base import Block, Found
from vramwise.models.families.blocks import two_or_three
from vramwise.models.families.config_fields import Fields
from vramwise.models.families.parts import Parameter, Parts, linear, query_size
from vramwise.types import ModelSpec


def t5_settles(fields: Fields, found: Found) -> Found:
    """Set both stacks' layers, and whether the MLP has a gate."""
    form = fields.text("feed_forward_proj") or "relu"
    gated, _, activation = form.rpartition("-")
    return {
        **_stacks(fields, found, fields.optional_integer("num_decoder_layers") or found["num_hidden_layers"]),
        "gated_mlp": gated == "gated",
        "activation": "gelu_new" if form == "gated-gelu" else activation,
    }


def bart_settles(fields: Fields, found: Found) -> Found:
    """Set both stacks' layers; positions begin at the third row of their tables."""
    return _stacks(fields, found, fields.integer("decoder_layers"), positions=found["max_position_embeddings"] + 2)


def whisper_settles(fields: Fields, found: Found) -> Found:
    """Set both stacks' layers and the sizes of the audio."""
    more = {name: fields.integer(name) for name in ("num_mel_bins", "max_source_positions")}
    return _stacks(fields, found, fields.integer("decoder_layers"), **more)


def _stacks(fields: Fields, found: Found, decoder: int, **more: int) -> Found:
    encoder = found["num_hidden_layers"]
    buckets = fields.count("relative_attention_num_buckets")
    sizes = {"encoder_layers": encoder, "buckets": buckets, **more}
    return {"num_hidden_layers": encoder + decoder, "layer_types": (), "sizes": tuple(sizes.items())}


def t5_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Yield one layer of T5; the first of each stack has the table of distances."""
    start, number = place(model, layer, "encoder", "decoder")
    inner, hidden = query_size(model), model.hidden_size
    parts = ["SelfAttention"] if start == "encoder" else ["SelfAttention", "EncDecAttention"]
    for part, name in enumerate(parts):
        begin = f"{start}.block.{number}.layer.{part}"
        for one in ("q", "k", "v"):
            yield from linear(f"{begin}.{name}.{one}", hidden, inner, False)
        yield from linear(f"{begin}.{name}.o", inner, hidden, False)
        if not number and not part:
            shape = (model.size("buckets"), model.num_attention_heads)
            yield Parameter(f"{begin}.{name}.relative_attention_bias.weight", shape, "embedding")
        yield Parameter(f"{begin}.layer_norm.weight", (hidden,), "norm")
    begin = f"{start}.block.{number}.layer.{len(parts)}"
    yield from _under(begin, two_or_three(model, block))
    yield Parameter(f"{begin}.layer_norm.weight", (hidden,), "norm")
    if _is_last(model, layer):
        yield Parameter(f"{start}.final_layer_norm.weight", (hidden,), "norm")


def bart_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Yield one layer of BART."""
    yield from _bart_layer(model, block, layer, key_bias=True)


def whisper_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Yield one layer of Whisper: keys have no bias, and the encoder begins with convolutions."""
    hidden = model.hidden_size
    if layer == 0:
        for name, width in (("conv1", model.size("num_mel_bins")), ("conv2", hidden)):
            yield Parameter(f"model.encoder.{name}.weight", (hidden, width, 3), "other")
            yield Parameter(f"model.encoder.{name}.bias", (hidden,), "bias")
    yield from _bart_layer(model, block, layer, key_bias=False)


def _bart_layer(model: ModelSpec, block: Block, layer: int, *, key_bias: bool) -> Parts:
    start, number = place(model, layer, "model.encoder", "model.decoder")
    hidden, speech = model.hidden_size, bool(model.size("num_mel_bins"))
    if not number:
        if speech and start == "model.decoder":
            yield Parameter(f"{start}.embed_tokens.weight", (model.vocab_size, hidden), "embedding")
        audio = model.size("max_source_positions") if start == "model.encoder" else 0
        rows = audio or model.size("positions") or model.max_position_embeddings
        yield Parameter(f"{start}.embed_positions.weight", (rows, hidden), "embedding")
    begin = f"{start}.layers.{number}"
    for part in ("self_attn", "encoder_attn")[: 1 if start == "model.encoder" else 2]:
        for one in ("k_proj", "v_proj", "q_proj", "out_proj"):
            yield from linear(f"{begin}.{part}.{one}", hidden, hidden, key_bias or one != "k_proj")
        yield from _norm(f"{begin}.{part}_layer_norm", hidden)
    yield from _under(begin, two_or_three(model, block))
    yield from _norm(f"{begin}.final_layer_norm", hidden)
    if _is_last(model, layer):
        yield from _norm(f"{start}.{'layer_norm' if speech else 'layernorm_embedding'}", hidden)


def place(model: ModelSpec, layer: int, encoder: str, decoder: str) -> tuple[str, int]:
    """Return the stack that a layer belongs to, and its number there."""
    first = model.size("encoder_layers")
    return (encoder, layer) if layer < first else (decoder, layer - first)


def _is_last(model: ModelSpec, layer: int) -> bool:
    return layer + 1 in (model.size("encoder_layers"), model.num_hidden_layers)


def _under(begin: str, parts: Parts) -> Iterator[Parameter]:
    for parameter in parts:
        yield parameter._replace(name=f"{begin}.{parameter.name}")


def _norm(name: str, width: int) -> Parts:
    for end in ("weight", "bias"):
        yield Parameter(f"{name}.{end}", (width,), "norm")
