"""A causal language model: embedding, blocks, final norm, head; the loss is `losses`' business.

Locals are dropped in the order in which the models' forward drops them: see `tape`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from vramwise.ghost.checkpointing import Checkpoint, non_reentrant
from vramwise.ghost.dtypes import BOOL, FP32, INT64
from vramwise.ghost.model.attention import Tables
from vramwise.ghost.model.block import LayerInputs, WithInputs
from vramwise.ghost.model.mask import boolean_mask, eager_mask, packed_mask, sdpa_mask
from vramwise.ghost.model.norms import Norm
from vramwise.ghost.model.rotary import rotary_tables
from vramwise.ghost.ops.elementwise import add, dropout, scale
from vramwise.ghost.ops.fused_layers import kept_tables
from vramwise.ghost.ops.in_place_lora import make_scratch
from vramwise.ghost.ops.loss import embedding
from vramwise.ghost.ops.shape import sliced
from vramwise.ghost.tape import Leaf, Parameter, Tape, Tensor

if TYPE_CHECKING:
    from vramwise.ghost.model.streams import Streams

# From this compute capability on.
_VARLEN = (8, 0)

Block = Callable[..., Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """Everything but the head. `windows` holds, for each kind of layer, its sliding window (None: full attention)."""

    embed: Parameter
    blocks: list[Block]
    norm: Norm
    rotary_dim: int
    attention: str
    checkpoint: Checkpoint | None = None
    # a hook makes the embeddings' output want a gradient (adapters under checkpointing)
    input_grads: bool = False
    # Gemma scales its embeddings inside their layer, Granite after it
    scaled_embedding: bool = False
    scaled_after: bool = False
    # the models that build their masks from a dictionary drop embeddings and positions in another order
    masks_by_kind: bool = False
    windows: dict[str, int | None] = field(default_factory=lambda: {"full": None})
    kinds: tuple[str, ...] = ()
    # Gemma 3 turns its sliding layers by another table
    local_tables: bool = False
    # OLMo 2 leaves the tables in fp32
    wide_tables: bool = False
    half_tables: bool = False
    tables_by_product: bool = True
    # GPT-2: a learned table of positions, added to the embeddings
    positions: Parameter | None = None
    # of the embeddings; phi drops the plain ones at once, the others keep both
    dropout: float = 0.0
    drops_embeddings: bool = False
    layer_inputs: LayerInputs | None = None  # Gemma 3n and 4
    streams: Streams | None = None  # Gemma 3n
    # encoders: tables beside the tokens', a norm of their sum, a projection of narrow embeddings, DeBERTa's distances
    token_types: Parameter | None = None
    table_norm: Norm | None = None
    wider: Callable[[Tape, Tensor], Tensor] | None = None
    distances: Parameter | None = None
    distances_norm: Norm | None = None
    # Falcon builds its mask even where no row is padded
    always_masked: bool = False
    # packed rows: positions come with the batch, a row of them for each of its own; a kernel may need no mask then
    packed: bool = False
    packed_eval: bool = False
    masked: bool = True
    # a trainer's own layers: tables for so many positions are kept, as is a buffer for opened weights; 0: none
    kept_positions: int = 0
    # positions tell where samples begin, and a mask is made from them; from Ampere on, a variable-length kernel runs in
    # its place, and the mask only lasts as long as the pass
    masks_samples: bool = False
    usual_samples: int = 1  # of a packed row, where that is not known
    scratch_bytes: int = 0
    # of a partly frozen model: which blocks have anything to train; the others pass without a checkpoint
    trained: tuple[bool, ...] = ()
    # the blocks that run, where that is not all of them: others like them are written down after them
    running: list[int] = field(default_factory=list)

    def __call__(self, t: Tape, ids: Tensor, attention_mask: Tensor, padded: bool) -> Tensor:
        """Return hidden states after the last norm."""
        t.mark("activations", "embeddings")
        embeds = embedding(t, self.embed, ids)
        if self.scaled_embedding:
            embeds = scale(t, embeds)
        if self.input_grads and t.grad_enabled and embeds.node is None:
            embeds = wanting_grad(embeds)
        leaf = embeds if self.input_grads else None
        if self.scaled_after:
            embeds = scale(t, embeds)
        if self.kept_positions:
            kept_tables(t, self.kept_positions, self.rotary_dim, embeds.dtype)
        make_scratch(t, self.scratch_bytes)
        packed = self.packed if t.training else self.packed_eval
        positions = ids if packed else scale(t, t.new((1, ids.shape[1]), INT64))
        every = None if self.layer_inputs is None else self.layer_inputs(t, ids, embeds)
        unread: dict[str, Tensor | None] = {}
        if len(attention_mask.shape) == 4:  # made by the collator, and taken as it is
            masks: dict[str, Tensor | None] = dict.fromkeys(self.windows, attention_mask)
        else:
            needed = (self.masked or not packed) and not self.kept_positions
            apart = self.masks_samples and packed and (t.samples or self.usual_samples) > 1
            if packed and padded and needed and self.attention == "sdpa" and not self.masks_samples:
                t.mark("activations", "attention mask")
                masks = {kind: packed_mask(t, positions, window=w) for kind, w in self.windows.items()}
            else:
                masks = self._masks(t, attention_mask, embeds, padded or apart) if needed else {}
            if apart and t.hardware.capability >= _VARLEN:
                unread, masks = masks, {}
        hidden = embeds
        if self.positions is not None:
            hidden = add(t, hidden, embedding(t, self.positions, positions))
        if self.token_types is not None:
            hidden = add(t, hidden, embedding(t, self.token_types, ids))
        if self.table_norm is not None:
            hidden = self.table_norm(t, hidden)
        hidden = dropout(t, hidden, self.dropout)
        if self.wider is not None:
            hidden = self.wider(t, hidden)
        if self.drops_embeddings or self.table_norm is not None:
            embeds = hidden
        if self.streams is not None:
            hidden = self.streams.spread(t, hidden)
        tables: dict[str, Any] = self._tables(t, positions, hidden)
        if self.distances is not None and self.distances_norm is not None:
            from vramwise.ghost.model.stacks import Beside  # only DeBERTa has them

            tables["full"] = Beside(distances=self.distances_norm(t, self.distances))
        if every is not None:
            tables = {kind: WithInputs(tables.get(kind), every) for kind in self.windows}
            del every
        self._hold(t, leaf, positions, tables, masks or unread)
        del leaf
        first = [hidden]
        del hidden
        hidden = self._through_blocks(t, first, tables, masks)
        t.mark("activations", "final norm")
        if self.streams is not None:
            hidden = self.streams.joined(t, hidden)
        hidden = self.norm(t, hidden)
        if self.masks_by_kind:
            del embeds, positions
        else:
            del positions, embeds
        masks.clear()
        unread.clear()
        tables.clear()
        return hidden

    def _through_blocks(
        self, t: Tape, first: list[Tensor], tables: Mapping[str, Any], masks: Mapping[str, Tensor | None]
    ) -> Tensor:
        """Through all blocks. `first`: what goes into them, taken out of the list so that nobody else holds it."""
        hidden = first.pop()
        for number in self.running or range(len(self.blocks)):
            kind = self.kinds[number] if self.kinds else "full"
            if number == len(self.blocks) - 1 and t.last_block_keeps:
                t.checkpoint_frame = None
            if t.hidden_states is not None:
                t.hidden_states.append(hidden)
            if self.trained and self.trained[number]:
                hidden = self._first_trained(t, hidden)
            checkpoint = None if self.trained and not self.trained[number] else self.checkpoint
            hidden = self._through(t, number, hidden, checkpoint, tables.get(kind), masks.get(kind))
        return hidden

    def _through(
        self, t: Tape, number: int, hidden: Tensor, checkpoint: Checkpoint | None, tables: Any, mask: Tensor | None
    ) -> Tensor:
        if isinstance(tables, WithInputs):
            return self._with_input(t, number, hidden, checkpoint, tables, mask)
        block = partial(self.blocks[number], tables=tables, mask=mask)
        return block(t, hidden) if checkpoint is None else checkpoint(t, block, hidden)

    def _with_input(
        self, t: Tape, number: int, hidden: Tensor, checkpoint: Checkpoint | None, tables: WithInputs, mask: Any
    ) -> Tensor:
        """Return a block and its own input, which a checkpoint keeps too."""
        t.mark("activations", f"layers.{number}: attention")
        every = tables.every
        own = sliced(t, every, (*every.shape[:2], every.shape[3]))

        def block(t: Tape, x: Tensor, own: Tensor) -> Tensor:
            return self.blocks[number](t, x, tables=tables._replace(own=own), mask=mask)

        return block(t, hidden, own) if checkpoint is None else checkpoint(t, block, hidden, own)

    def _first_trained(self, t: Tape, hidden: Tensor) -> Tensor:
        """The input of the first block that is trained: it is made to want a gradient, so that a checkpoint has one."""
        if self.checkpoint is None or not t.grad_enabled or hidden.node is not None:
            return hidden
        leaf = wanting_grad(hidden)
        if t.training:
            t.graph_holds.append(leaf)
        return leaf

    def _masks(self, t: Tape, attention_mask: Tensor, embeds: Tensor, padded: bool) -> dict[str, Tensor | None]:
        t.mark("activations", "attention mask")
        if self.attention == "eager":
            return {kind: eager_mask(t, attention_mask, embeds.dtype, window=w) for kind, w in self.windows.items()}
        if self.always_masked:
            return {"full": boolean_mask(t, t.new(attention_mask.shape, BOOL), window=False)}
        if self.attention == "sdpa":
            return {kind: sdpa_mask(t, attention_mask, padded=padded, window=w) for kind, w in self.windows.items()}
        if padded and "flash" in self.attention:
            return dict.fromkeys(self.windows, t.new(attention_mask.shape, BOOL))
        return {}

    def _tables(self, t: Tape, positions: Tensor, hidden: Tensor) -> dict[str, Tables | None]:
        if not self.rotary_dim:
            return {}
        if self.kept_positions:
            kept = Tensor(None, (0,), 0, hidden.dtype)
            return dict.fromkeys(self.windows, (kept, kept))
        t.mark("activations", "rotary tables")
        dtype = FP32 if self.wide_tables else hidden.dtype
        by_product = self.tables_by_product
        first = rotary_tables(t, self.rotary_dim, positions, dtype, by_product=by_product, halves=self.half_tables)
        tables: dict[str, Tables | None] = dict.fromkeys(self.windows, first)
        if self.local_tables:
            tables["sliding"] = rotary_tables(t, self.rotary_dim, positions, dtype, by_product=by_product)
        return tables

    def _hold(
        self,
        t: Tape,
        leaf: Tensor | None,
        positions: Tensor,
        tables: dict[str, Tables | None],
        masks: dict[str, Tensor | None],
    ) -> None:
        """Keep the arguments of checkpointed blocks as long as the graph; a leaf of it always.

        Without reentry they go with the last block that runs again: nobody else keeps them.
        """
        if not (t.training and t.grad_enabled):
            return
        if self.checkpoint is not None and self.checkpoint is not non_reentrant:
            t.graph_holds.append((leaf, positions, *tables.values(), *masks.values()))
        elif leaf is not None:
            t.graph_holds.append(leaf)


def wanting_grad(x: Tensor) -> Tensor:
    """Return the same tensor as a leaf that wants a gradient."""
    leaf = Leaf(x.storage, x.shape, x.numel, x.dtype)
    leaf.require_grad()
    return leaf
