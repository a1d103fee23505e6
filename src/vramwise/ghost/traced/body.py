"""A model whose parts run as recorded: what comes before the blocks, the blocks, the last norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.ghost.checkpointing import Checkpoint
from vramwise.ghost.dtypes import BF16
from vramwise.ghost.model.causal_lm import Body, wanting_grad
from vramwise.ghost.model.kernels import Kernel
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.tape import Tape, Tensor
from vramwise.ghost.traced.folding import Adapter, Folding
from vramwise.ghost.traced.program import Recorded
from vramwise.ghost.traced.running import Registers, run


@dataclass(frozen=True, slots=True)
class Given:
    """What blocks are given besides hidden states, and the batch's size.

    `shown`: for each kind of block, tensors from before the blocks: tables, positions. `shared`: what blocks have left
    for later ones, by name. `handed`: what the model's own code makes for this one block.
    """

    rows: int
    tokens: int
    shown: tuple[tuple[Tensor | None, ...], ...]
    shared: dict[str, Tensor | None]
    handed: tuple[Tensor, ...] = ()

    def left(self, name: str) -> Tensor | None:
        """What an earlier block has left by this name."""
        if name not in self.shared:
            raise VramwiseError("a layer of the trace takes what no earlier layer has left: trace the model again")
        return self.shared[name]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the blocks of a kind take from earlier ones and leave for later ones: a name and a place or register."""

    handed: tuple[int, ...] = ()  # places among what the program is given
    takes: tuple[tuple[str, int], ...] = ()
    leaves: tuple[tuple[str, int], ...] = ()


NO_EXCHANGE = Exchange()
MASK = Tensor(None, (), 0, BF16)  # among parameters: the mask of the pass


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedPart:
    """A program with its weights: a block, or what comes before or after the blocks (whose `label` is empty)."""

    label: str
    kind: int
    trained: Recorded
    frozen: Recorded
    experts: Recorded | None  # as recorded with gradients for experts' weights alone
    wide: Recorded | None  # as recorded with linear layers that give fp32, where they do
    parameters: tuple[Tensor | None, ...]
    projections: tuple[Projection | None, ...]
    adapters: tuple[Adapter | None, ...]  # of experts' weights
    kernel: Kernel | None = None
    exchange: Exchange = NO_EXCHANGE
    batch: list[int] = field(default_factory=list)  # rows and tokens of the pass under way, for the last norm

    def registers(self, t: Tape, given: Sequence[Tensor | None], rows: int, tokens: int, **more: Any) -> Registers:
        """All registers as the program leaves them, with the result once more at the end."""
        program = self._recorded().at(rows, tokens)
        folding = Folding(t, self.adapters, len(given)) if any(self.adapters) else None
        parameters = self.parameters
        if MASK in parameters and more.get("mask") is not None:
            parameters = tuple([more["mask"] if one is MASK else one for one in parameters])
        found = run(t, program, given, parameters, self.projections, kernel=self.kernel, folding=folding, **more)
        found.append(found[program.result])
        return found

    def _recorded(self) -> Recorded:
        """The pass in which the same weights outside of linear layers want gradients."""
        if any(one is not None and one.node is not None for one in self.parameters):
            return self.trained
        if self.wide is not None:
            return self.wide
        return self.experts if self.experts is not None and any(self.adapters) else self.frozen

    def __call__(self, t: Tape, x: Tensor, *, tables: Given | None = None, mask: Tensor | None = None) -> Tensor:
        """Run it as a block, or as the last norm."""
        halfway = None
        if self.label:
            t.mark("activations", f"{self.label}: attention")

            def halfway() -> None:
                t.mark("activations", f"{self.label}: mlp")

        if tables is None:  # the last norm
            result = self.registers(t, (x,), *self.batch).pop()
        else:
            registers = self.registers(
                t, self._given(x, tables), tables.rows, tables.tokens, mask=mask, halfway=halfway
            )
            result = registers.pop()
            for name, register in self.exchange.leaves:
                tables.shared[name] = registers[register]
        assert result is not None
        return result

    def _given(self, x: Tensor, tables: Given) -> list[Tensor | None]:
        found = [x, *tables.shown[self.kind]]
        for place, tensor in zip(self.exchange.handed, tables.handed, strict=True):
            found[place] = tensor
        for name, place in self.exchange.takes:
            found[place] = tables.left(name)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """What the model's own code does between two blocks. Without a part, it only hands on what a block has left.

    `results`: the block's hidden states and what else it is handed. Each is "made" by the part (a register), was "left"
    by an earlier block (a name), or comes from before all blocks (a place among what the block is "shown").
    """

    label: str
    part: TracedPart | None
    kind: int  # of the block
    results: tuple[tuple[str, Any], ...]

    def __call__(self, t: Tape, hidden: Tensor, tables: Given) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The block's hidden states, and what else it is handed."""
        t.mark("activations", f"{self.label}: attention")
        registers: Registers = [hidden]
        if self.part is not None:
            given = (hidden, *tables.shown[self.part.kind])
            registers = self.part.registers(t, given, tables.rows, tables.tokens)
        sources: dict[str, Any] = {"made": registers, "shown": tables.shown[self.kind]}
        found: list[Any] = [tables.left(place) if how == "left" else sources[how][place] for how, place in self.results]
        return found[0], tuple(found[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedBody(Body):
    """A model without its head.

    `shown`: for each kind of block, the registers that its blocks are given. `held`: registers that the model's own
    variables hold until the last norm has run, in the order in which they let go. `between`: what the model's own code
    does before each block, where it makes something for it.
    """

    start: TracedPart
    shown: tuple[tuple[int | None, ...], ...]
    held: tuple[int, ...]
    batch: list[int]  # as the last norm reads it
    between: tuple[Between | None, ...]

    def __call__(self, t: Tape, ids: Tensor, attention_mask: Tensor, padded: bool) -> Tensor:
        """Hidden states after the last norm."""
        t.mark("activations", "embeddings")
        leaves: list[Tensor] = []
        masks: dict[str, Tensor | None] = {}
        packed = self.packed if t.training else self.packed_eval

        def make_masks() -> None:
            if len(attention_mask.shape) == 4:
                masks.update(dict.fromkeys(self.windows, attention_mask))
            elif (self.masked or not packed) and not masks:
                masks.update(self._masks(t, attention_mask, Tensor(None, (), 0, self.embed.dtype), padded))
                t.mark("activations", "rotary tables")

        self.batch[:] = ids.shape
        first, every, held = self._begin(t, ids, leaves, make_masks)
        make_masks()
        tables: dict[str, Any] = dict.fromkeys(("full", "sliding"), every)
        del every
        self._hold(t, leaves.pop() if leaves else None, ids, tables, masks)
        hidden = self._through_blocks(t, first, tables, masks)
        t.mark("activations", "final norm")
        hidden = self.norm(t, hidden)
        while held:
            held.pop()
        masks.clear()
        tables.clear()
        return hidden

    def _through(
        self, t: Tape, number: int, hidden: Tensor, checkpoint: Checkpoint | None, tables: Any, mask: Tensor | None
    ) -> Tensor:
        """A block, with what the model's own code makes for it: a checkpoint keeps that too."""
        between = self.between[number]
        if between is None:
            return Body._through(self, t, number, hidden, checkpoint, tables, mask)
        hidden, more = between(t, hidden, tables)

        def block(t: Tape, x: Tensor, *handed: Tensor) -> Tensor:
            return self.blocks[number](t, x, tables=replace(tables, handed=handed), mask=mask)

        if checkpoint is None:
            return block(t, hidden, *more)
        return checkpoint(t, block, hidden, *more)

    def _begin(
        self, t: Tape, ids: Tensor, leaves: list[Tensor], masks: Callable[[], None]
    ) -> tuple[list[Tensor], Given, Registers]:
        """What goes into the first block, alone in a list, what all blocks are given, and what is held meanwhile."""
        wants = self.input_grads and t.grad_enabled
        seen: list[bool] = []

        def hook(embeds: Tensor) -> Tensor:
            if wants and not seen and embeds.node is None:
                embeds = wanting_grad(embeds)
                leaves.append(embeds)
            seen.append(True)
            return embeds

        registers = self.start.registers(t, (ids,), *ids.shape, hook=hook, masks=masks)
        hidden = registers.pop()
        assert hidden is not None
        if self.tables_by_product:  # in the run's release of transformers, whichever was traced
            t.workspace()
        given = [[None if place is None else registers[place] for place in places] for places in self.shown]
        rows, tokens = ids.shape
        every = Given(rows, tokens, tuple([tuple(tensors) for tensors in given]), {})
        del given
        return [hidden], every, [registers[place] for place in reversed(self.held)]
