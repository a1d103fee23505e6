"""The parts of towers: parameters by name, shape and kind, in transformers' order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vramwise.models.families.config_fields import MANY, Fields

# name, shape, kind: as in `families.parts.Parameter`
Part = tuple[str, tuple[int, ...], str]
# The whole model's config and the width of its text model → the ModelSpec fields about everything but the text model.
Maker = Callable[[Fields, int], dict[str, Any]]


def linear(name: str, inputs: int, outputs: int, bias: bool = True) -> Iterator[Part]:
    """Yield a linear layer's weight and bias."""
    yield f"{name}.weight", (outputs, inputs), "linear"
    if bias:
        yield f"{name}.bias", (outputs,), "bias"


def norm(name: str, size: int, bias: bool = True) -> Iterator[Part]:
    """Yield a norm's weight and bias."""
    yield f"{name}.weight", (size,), "norm"
    if bias:
        yield f"{name}.bias", (size,), "norm"


def block_of(outer: Fields, name: str, defaults: Mapping[str, Any]) -> Fields:
    """Return the fields of a block of the config, such as `vision_config`, with its defaults."""
    return Fields(outer.mapping(name), defaults, f"{outer.source} ({name})")


def found(
    before: Iterator[Part], after: Iterator[Part] | None = None, part: str = "language_model", left_out: str = ""
) -> dict[str, Any]:
    """Return the ModelSpec fields: parameters before and after the text model, its name, and what is left out."""
    return {"text_part": part, "tower": tuple(before), "after_text": tuple(after or ()), "left_out": left_out}


def layers(fields: Fields, *names: str) -> range:
    """Return the numbers of a tower's layers."""
    return range(fields.integer(*names, most=MANY))


def two_layers(name: str, hidden: int, inner: int) -> Iterator[Part]:
    """Yield an MLP without a gate."""
    yield from linear(f"{name}.fc1", hidden, inner)
    yield from linear(f"{name}.fc2", inner, hidden)


def gated_layers(name: str, hidden: int, inner: int, bias: bool = True, inside: str = "") -> Iterator[Part]:
    """Yield an MLP with a gate. `inside`: a suffix of the names of its linears."""
    yield from linear(f"{name}.gate_proj{inside}", hidden, inner, bias)
    yield from linear(f"{name}.up_proj{inside}", hidden, inner, bias)
    yield from linear(f"{name}.down_proj{inside}", inner, hidden, bias)


def encoder(name: str, hidden: int, inner: int, norm_first: bool) -> Iterator[Part]:
    """Yield a layer of SigLIP's encoder."""
    if norm_first:
        yield from norm(f"{name}.layer_norm1", hidden)
    for projection in ("k_proj", "v_proj", "q_proj", "out_proj"):
        yield from linear(f"{name}.self_attn.{projection}", hidden, hidden)
    yield from norm(f"{name}.layer_norm{2 if norm_first else 1}", hidden)
    yield from two_layers(f"{name}.mlp", hidden, inner)
    if not norm_first:
        yield from norm(f"{name}.layer_norm2", hidden)


def pooling_head(tower: str, hidden: int, inner: int) -> Iterator[Part]:
    """Yield the pooling head of SigLIP."""
    yield f"{tower}.head.probe", (1, 1, hidden), "other"
    yield f"{tower}.head.attention.in_proj_weight", (3 * hidden, hidden), "other"
    yield f"{tower}.head.attention.in_proj_bias", (3 * hidden,), "other"
    yield from linear(f"{tower}.head.attention.out_proj", hidden, hidden)
    yield from norm(f"{tower}.head.layernorm", hidden)
    yield from two_layers(f"{tower}.head.mlp", hidden, inner)
