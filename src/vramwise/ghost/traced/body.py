"""A model whose parts run as recorded: what comes before the blocks, the blocks, the last norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vramwise.ghost.model.causal_lm import Body, wanting_grad
from vramwise.ghost.model.kernels import Kernel
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.tape import Tape, Tensor
from vramwise.ghost.traced.folding import Adapter, Folding
from vramwise.ghost.traced.program import Recorded
from vramwise.ghost.traced.running import Registers, run

# for each kind of block, the tensors besides hidden states that its blocks are given: tables, positions
Given = tuple[tuple["Tensor | None", ...], ...]


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

    def registers(self, t: Tape, given: Sequence[Tensor | None], rows: int, tokens: int, **more: Any) -> Registers:
        """All registers as the program leaves them, with the result once more at the end."""
        program = self._recorded().at(rows, tokens)
        folding = Folding(t, self.adapters, len(given)) if any(self.adapters) else None
        found = run(t, program, given, self.parameters, self.projections, kernel=self.kernel, folding=folding, **more)
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

        given = (x, *(tables[self.kind] if tables else ()))
        rows, tokens = x.shape[:2]
        result = self.registers(t, given, rows, tokens, mask=mask, halfway=halfway).pop()
        assert result is not None
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedBody(Body):
    """A model without its head.

    `shown`: for each kind of block, the registers that its blocks are given. `held`: registers that the model's own
    variables hold until the last norm has run, in the order in which they let go.
    """

    start: TracedPart
    shown: tuple[tuple[int, ...], ...]
    held: tuple[int, ...]

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
        given = tuple([tuple([registers[place] for place in places]) for places in self.shown])
        return [hidden], given, [registers[place] for place in reversed(self.held)]
