"""Which weights ZeRO 3 has gathered, module by module: DeepSpeed's `PartitionedParameterCoordinator`.

The first forward and backward record the order of modules; there, each module's weights are freed when it is done. From
the second on, weights are gathered ahead, and kept if they are used again soon.
"""

from __future__ import annotations

from collections import deque

from vramwise.ghost.sharding import GATHER_STREAM, StreamStorage
from vramwise.ghost.sharding.zero import Zero
from vramwise.ghost.tape import Parameter, Storage, Tape


class Spread:
    """A weight of which each rank keeps a share. `whole`: the gathered weight, False while it is not gathered."""

    __slots__ = ("frozen", "in_use", "label", "last_use", "numel", "parameter", "whole")

    def __init__(self, label: str, numel: int, parameter: Parameter | None) -> None:
        self.label = label
        self.numel = numel
        # None: quantised, bytes without a type
        self.parameter = parameter
        self.frozen = parameter is None or parameter.node is None
        self.whole: Storage | bool = False
        self.in_use: set[object] = set()
        # the step up to which a gather ahead has seen it used
        self.last_use = -1


class Module:
    """A layer with weights of its own: `spread`, which are gathered before it runs and freed after it."""

    __slots__ = ("spread",)

    def __init__(self, spread: list[Spread]) -> None:
        self.spread = spread


NO_WEIGHTS = Module([])


class Coordinator:
    """Gathers and frees the weights of a model, module by module."""

    def __init__(self, zero: Zero) -> None:
        self.zero = zero
        self.all: dict[int, Spread] = {}
        self.passes = 0
        self.order: list[Module] = []
        self.uses: list[tuple[Spread, int]] = []
        self.queue: deque[tuple[Spread, int]] = deque()
        self.at = 0
        self.live = 0
        self.first: Module | None = None
        # modules around the blocks that are called before the embeddings, transformers' two the last of them
        self.around = 0
        # the model with its head: holds what its loss reads without calling the module that has it
        self.top = Module([])
        self.tape: Tape | None = None

    @property
    def _known(self) -> bool:
        """Return whether the order of modules is known, from the first forward and backward."""
        return self.passes > 1

    def reset(self) -> None:
        """Start a pass: free what was gathered ahead and not used."""
        for spread in self.all.values():
            if spread.whole and not spread.in_use and not self._small(spread):
                self._drop(spread)
        self.passes += 1
        if self._known and not self.uses:
            self.uses = [(spread, number) for number, module in enumerate(self.order) for spread in module.spread]
        self.queue = deque(self.uses)
        for spread in self.all.values():
            spread.last_use = -1
        self.at = 0
        self.live = 0

    def begin_forward(self, t: Tape) -> None:
        """Gather the embeddings, which are used first; `leave_first` frees them."""
        self.tape = t
        for number in range(self.around):
            self.fetch(t, self.top if number == self.around - 2 else NO_WEIGHTS, forward=True)
        if self.first is not None:
            self.fetch(t, self.first, forward=True)

    def leave_first(self, t: Tape) -> None:
        """Free the embeddings: the first block begins."""
        if self.first is not None:
            self.release(self.first)
            self.fetch(t, NO_WEIGHTS, forward=True)  # the rotary embedding

    def fetch(self, t: Tape, module: Module, *, forward: bool) -> None:
        """Gather the weights of a module, and those of modules after it as far as the settings allow."""
        if not self._known:
            self.order.append(module)
        missing = [spread for spread in module.spread if not spread.whole]
        self._gather(t, missing)
        if t.work is not None:
            t.work.wait()
        for spread in module.spread:
            spread.in_use.add(module)
            if forward and t.in_backward and spread.frozen and self.zero.holds_recomputed:
                spread.in_use.add(self)
        if self._known:
            self._gather_ahead(t, module)
        self.at += 1

    def _gather_ahead(self, t: Tape, module: Module) -> None:
        due = {spread for spread in module.spread if spread.last_use < self.at}
        while self.queue and due:
            spread, number = self.queue.popleft()
            spread.last_use = number
            due.discard(spread)
        settings = self.zero.settings
        assert settings.prefetch is not None
        room = min(settings.most_live - self.live, settings.prefetch)
        ahead: list[Spread] = []
        elements = 0
        while self.queue and elements < room:
            spread, number = self.queue.popleft()
            spread.last_use = max(spread.last_use, number)
            if not spread.whole and spread not in ahead:
                ahead.append(spread)
                elements += spread.numel
        self._gather(t, ahead)

    def release(self, module: Module) -> None:
        """Free the weights of a module that is done, except small ones and those that are used again soon."""
        kept = self._used_soon(module) if self._known else set()
        for spread in module.spread:
            spread.in_use.discard(module)
            if spread not in kept:
                self._drop(spread)

    def _used_soon(self, module: Module) -> set[Spread]:
        wanted = {s for s in module.spread if self._small(s) or s.last_use > self.at}
        open_ = set(module.spread) - wanted
        passed = 0
        for later in self.order[self.at :]:
            if passed >= self.zero.settings.reuse_distance or not open_:
                break
            for spread in later.spread:
                if spread in open_:
                    wanted.add(spread)
                    open_.discard(spread)
                passed += spread.numel
        return wanted

    def use_outside(self, spread: Spread) -> None:
        """Gather a weight that is read without a call of its module.

        The first time it is gathered on the stream that computes. From then on it counts as a weight of the whole
        model: gathered when the model is called, and kept until its forward is done.
        """
        if self.tape is None or spread in self.top.spread:
            return
        self.top.spread.append(spread)
        self._gather(self.tape, [spread], aside=False)
        spread.in_use.add(self.top)

    def end_forward(self) -> None:
        """Free the weights of the model itself: its forward is done."""
        if self.top.spread:
            self.release(self.top)

    def begin_backward(self, t: Tape) -> None:
        """Gather the weights of the model itself: its backward begins."""
        if self.top.spread:
            self.fetch(t, self.top, forward=False)

    def release_leftovers(self) -> None:
        """Free what is still in use after backward, except small weights."""
        for spread in self.all.values():
            if spread.in_use:
                spread.in_use.clear()
                if not self._small(spread):
                    self._drop(spread)

    def release_all(self) -> None:
        """Free all weights: they are about to change."""
        for spread in self.all.values():
            spread.in_use.clear()
            self._drop(spread)

    def gather_small(self, t: Tape) -> None:
        """Gather the small weights, which DeepSpeed does right after a step."""
        for spread in self.all.values():
            if self._small(spread):
                self._gather(t, [spread], ahead=False)

    def _small(self, spread: Spread) -> bool:
        limit = self.zero.settings.keeps_under
        assert limit is not None
        return spread.numel <= limit

    def _gather(self, t: Tape, wanted: list[Spread], *, ahead: bool = True, aside: bool = True) -> None:
        """Gather weights: one directly, several through a flat buffer. `aside`: on the stream for gathering."""
        wanted = [spread for spread in wanted if not spread.whole]
        if not wanted:
            return
        before = t.mark("weights", f"{wanted[0].label}: gathered weights")
        zero = self.zero
        if zero.ranks == 1 and not zero.host_weights:
            for spread in wanted:
                spread.whole = True
        else:
            total = sum(self._nbytes(spread) for spread in wanted)
            if len(wanted) > 1 and zero.ranks > 1:
                self._gather_together(t, wanted, aside)
            else:
                for spread in wanted:
                    spread.whole = self._storage(t, self._nbytes(spread), aside)
                    self._bring(t, [spread], aside)
            if t.work is not None:
                if zero.host_weights:
                    t.work.copy(total / zero.ranks, to_host=False)
                t.work.collective("gather", total)
        self.live += sum(spread.numel for spread in wanted) if ahead else 0
        t.tag = before

    def _gather_together(self, t: Tape, wanted: list[Spread], aside: bool) -> None:
        flat = self._storage(t, sum(self._nbytes(spread) for spread in wanted), aside)
        self._bring(t, wanted, aside)
        for spread in wanted:
            spread.whole = self._storage(t, self._nbytes(spread), aside)
        del flat

    def _bring(self, t: Tape, wanted: list[Spread], aside: bool) -> None:
        """Copy this rank's shares from the host: all are on the card before the first is put into its weight."""
        if self.zero.host_weights and self.zero.ranks > 1:
            shares = [self._storage(t, self._nbytes(spread) // self.zero.ranks, aside) for spread in wanted]
            del shares

    def _storage(self, t: Tape, nbytes: int, aside: bool) -> Storage:
        return StreamStorage(t, nbytes, GATHER_STREAM) if aside and self.zero.settings.overlaps else Storage(t, nbytes)

    def _nbytes(self, spread: Spread) -> int:
        width = 1 if spread.parameter is None else spread.parameter.dtype.size
        return self.zero.share(spread.numel) * self.zero.ranks * width

    def _drop(self, spread: Spread) -> None:
        if spread.whole and not spread.in_use:
            spread.whole = False
            self.live -= spread.numel
