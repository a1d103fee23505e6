"""The layout of a model's parameters, and the family that combines it with a block and model_types.

All sizes come from the `ModelSpec`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from vramwise.models.families.base import Block, ModelType
from vramwise.models.families.parts import Parameter, Parts, attention, mlp, norm, norms, two_matrices
from vramwise.types import ModelSpec

# Yields one block's parameters, given the layer's number. For families whose layers differ in more than sparsity.
LayerParts = Callable[[ModelSpec, Block, int], Parts]
# Yields one block's parameters, given the model, the block's facts, and whether the layer is a mixture of experts.
BlockParts = Callable[[ModelSpec, Block, bool], Parts]


def llama(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Llama's block: attention, MLP, norms."""
    yield from attention(model, block)
    yield from mlp(model)
    yield from norms(model, block)


def two_matrix_llama(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Return a llama block whose MLP has no gate, under the block's own names."""
    yield from attention(model, block)
    yield from two_matrices(model, block)
    yield from norms(model, block)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The parameter layout of a family: before the blocks, one block, and after the blocks."""

    layers: str = "model.layers"
    embedding: str = "model.embed_tokens"
    final_norm: str = "model.norm"
    positions: str | None = None  # name of the learned position table, if any
    positions_last: bool = False  # it comes behind `after_tables`
    extra_rows: int = 0  # further rows of the embeddings, for images; the head does not have them
    block: BlockParts = llama
    by_layer: LayerParts | None = None  # takes precedence over `block`
    # yields the parameters between the tables and the blocks: token types, a norm, a projection
    after_tables: Callable[[ModelSpec], Parts] | None = None
    # the layers' own parts name everything in full, the token table too where it is not the first parameter
    full_names: bool = False
    table_in_layers: bool = False
    shared_layers: bool = False  # all blocks are the first one
    # yields the parameters between the last norm and the head, given the name of the text model
    after: Callable[[ModelSpec, Block, str], Parts] | None = None

    def start(self, model: ModelSpec, layer: int) -> str:
        """Return what the names of a block's parameters begin with."""
        if self.full_names:
            return ""
        return f"{self.inside(model, self.layers)}.{0 if self.shared_layers else layer}."

    def inside(self, model: ModelSpec, name: str) -> str:
        """Return the name within a multimodal model: `model.layers` becomes `model.language_model.layers`."""
        if model.text_part.startswith("."):
            return f"{model.text_part[1:]}.{name}"
        return name.replace(".", f".{model.text_part}.", 1) if model.text_part else name

    def embeddings(self, model: ModelSpec) -> Parts:
        """Yield the token table, and the position table if positions are learned."""
        name, width = self.inside(model, self.embedding), model.size("embedding_size") or model.hidden_size
        if not self.table_in_layers:
            yield Parameter(f"{name}.weight", (model.vocab_size + self.extra_rows, width), "embedding")
        places = [Parameter(f"{self.positions}.weight", (model.max_position_embeddings, width), "embedding")]
        if self.positions is not None and not self.positions_last:
            yield from places
        if self.after_tables is not None:
            yield from self.after_tables(model)
        if self.positions is not None and self.positions_last:
            yield from places

    def final(self, model: ModelSpec, block: Block) -> Parts:
        """Yield the last norm, the parameters after it, and the head unless it is tied."""
        if self.final_norm:
            yield from norm(self.inside(model, self.final_norm), model, block)
        if self.after is not None:
            yield from self.after(model, block, self.inside(model, self.final_norm).rpartition(".")[0])
        if not model.tie_word_embeddings:
            yield Parameter("lm_head.weight", (model.vocab_size, model.hidden_size), "lm_head")
        if model.lm_head_bias:
            yield Parameter("lm_head.bias", (model.vocab_size,), "lm_head")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family: an entry of `families.json`."""

    name: str
    types: Mapping[str, ModelType]
    block: Block
    layout: Layout
    # "encoder": no head for the vocabulary among its parameters. "both": an encoder and a decoder that attends to it
    reads: Literal["decoder", "encoder", "both"] = "decoder"
    # whether a block of this family was measured in a recorded run; if not, predictions say so
    measured: bool = True
    # a sentence about the part of its block that is not modelled operation by operation ("" if there is none)
    coarse: str = ""
