"""A model whose parts run as recorded: the code before the blocks, the blocks, and the last norm."""

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
    """The inputs of blocks besides the hidden states, and the size of the batch.

    `shown`: for each kind of block, tensors made before all blocks, such as tables and positions. `shared`: tensors
    that blocks have left for later ones, by name. `handed`: tensors that the model's own code makes for this block.
    """

    rows: int
    tokens: int
    shown: tuple[tuple[Tensor | None, ...], ...]
    shared: dict[str, Tensor | None]
    handed: tuple[Tensor, ...] = ()

    def left(self, name: str) -> Tensor | None:
        """Return the tensor that an earlier block left under this name. Raises VramwiseError if there is none."""
        if name not in self.shared:
            raise VramwiseError("a layer of the trace takes what no earlier layer has left: trace the model again")
        return self.shared[name]


@dataclass(frozen=True, slots=True)
class Exchange:
    """The tensors that blocks of a kind take from earlier blocks and leave for later ones.

    `takes` has names and positions among the program's inputs, `leaves` has names and registers.
    """

    handed: tuple[int, ...] = ()  # positions among the program's inputs
    takes: tuple[tuple[str, int], ...] = ()
    leaves: tuple[tuple[str, int], ...] = ()


NO_EXCHANGE = Exchange()
MASK = Tensor(None, (), 0, BF16)  # among parameters: the mask of the pass


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedPart:
    """A program with its weights: a block, or the code before, between or after the blocks (with an empty `label`)."""

    label: str
    kind: int
    trained: Recorded
    frozen: Recorded
    experts: Recorded | None  # as recorded with gradients for expert weights only
    wide: Recorded | None  # as recorded with linear layers that return fp32, if they do
    parameters: tuple[Tensor | None, ...]
    projections: tuple[Projection | None, ...]
    adapters: tuple[Adapter | None, ...]  # of expert weights
    kernel: Kernel | None = None
    exchange: Exchange = NO_EXCHANGE
    batch: list[int] = field(default_factory=list)  # rows and tokens of the current pass, for the last norm

    def registers(self, t: Tape, given: Sequence[Tensor | None], rows: int, tokens: int, **more: Any) -> Registers:
        """Run the program and return all its registers, with the result appended at the end."""
        program = self._recorded().at(rows, tokens)
        folding = Folding(t, self.adapters, len(given)) if any(self.adapters) else None
        parameters = self.parameters
        if MASK in parameters and more.get("mask") is not None:
            parameters = tuple([more["mask"] if one is MASK else one for one in parameters])
        found = run(t, program, given, parameters, self.projections, kernel=self.kernel, folding=folding, **more)
        found.append(found[program.result])
        return found

    def _recorded(self) -> Recorded:
        """Return the recording whose trainable weights match those of this part."""
        if any(one is not None and one.node is not None for one in self.parameters):
            return self.trained
        if self.wide is not None:
            return self.wide
        return self.experts if self.experts is not None and any(self.adapters) else self.frozen

    def __call__(self, t: Tape, x: Tensor, *, tables: Given | None = None, mask: Tensor | None = None) -> Tensor:
        """Run the part as a block, or as the last norm if `tables` is None, and return its result."""
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
    """The model's own code between two blocks. Without a part, it only passes tensors on.

    `results`: the block's hidden states and its further inputs. Each is "made" by the part (a register), was "left" by
    an earlier block (a name), or was made before all blocks (a position among what the block is "shown").
    """

    label: str
    part: TracedPart | None
    kind: int  # of the block
    results: tuple[tuple[str, Any], ...]

    def __call__(self, t: Tape, hidden: Tensor, tables: Given) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the block's hidden states and its further inputs."""
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

    `shown`: for each kind of block, the registers of `start` that its blocks receive. `held`: registers that the
    model's own variables hold until the last norm has run, in the order in which they are freed. `between`: the model's
    own code before each block, if it makes something for the block.
    """

    start: TracedPart
    shown: tuple[tuple[int | None, ...], ...]
    held: tuple[int, ...]
    batch: list[int]  # rows and tokens, shared with the last norm
    between: tuple[Between | None, ...]

    def __call__(self, t: Tape, ids: Tensor, attention_mask: Tensor, padded: bool) -> Tensor:
        """Return the hidden states after the last norm."""
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
        """Run a block with what the model's own code makes for it. A checkpoint keeps these inputs too."""
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
        """Run the code before the blocks.

        Returns a list with the first block's input only, the inputs of all blocks, and the tensors held meanwhile.
        """
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
        if self.tables_by_product:  # depends on the run's transformers version, not on the traced one
            t.workspace()
        given = [[None if place is None else registers[place] for place in places] for places in self.shown]
        rows, tokens = ids.shape
        every = Given(rows, tokens, tuple([tuple(tensors) for tensors in given]), {})
        del given
        return [hidden], every, [registers[place] for place in reversed(self.held)]
