"""ZeRO 1 and 2: weights stay whole but lie in one flat buffer a group, of which each rank steps its partition.

Gradients are copied into a bucket as they come, and summed over all ranks when it is full. Of the sums a rank keeps
the whole gradients of weights that reach into its partition (all in one buffer, made at the first exchange of a
backward); stage 2 drops the others at once. Stage 1 exchanges at the last micro-step alone and lets whole gradients
accumulate until then; stage 2 exchanges at every micro-step and adds what it keeps. Buckets are made by the first
gradient of a backward and go at its end.
"""

from __future__ import annotations

from itertools import accumulate

from vramwise.ghost.sharding.zero_engine import ZeroEngine, flat_tensor
from vramwise.ghost.tape import Parameter, Storage, Tape, Tensor

# partitions begin where collectives may: at four bytes
_ALIGNMENT = 2


class FlatEngine(ZeroEngine):
    """The optimizer of stages 1 and 2, as the rank sees it that keeps the most gradients."""

    def build(self, t: Tape) -> None:
        """Flat weights, and the fp32 copy of this rank's partition."""
        self.buckets: list[Storage] = []
        self.index = 0
        self.summed: Storage | None = None
        # gradients of this rank's partition by group, while they accumulate
        self.kept: list[list[Tensor]] = []
        self.flat: list[Storage] = []
        self.scratch: Storage | None = None
        sizes = []
        for group in self.groups:
            sizes.append(self._flatten(t, group))
            self.make_partition(t, sizes[-1], copies=1)
        self.owned = self._owned(sizes)
        self.pieces = self._pieces(sizes)
        t.mark("optimizer", "fp32 gradients, made once")
        if self.zero.host_states:
            t.mark("gradients", "buffer for gradients from the host")
            self.scratch = Storage(t, max(p.numel for group in self.groups for p in group) * self.zero.compute.size)
        else:
            made = [Storage(t, size * 4) for size in sizes]
            del made

    def _flatten(self, t: Tape, group: list[Parameter]) -> int:
        """Copy a group's weights into one buffer, which they then are pieces of. Returns a partition's elements."""
        t.empty_cache()
        elements = sum(p.numel for p in group)
        unit = _ALIGNMENT * self.zero.ranks
        aligned = -(-elements // unit) * unit
        t.mark("weights", "flat weights")
        flat = Storage(t, aligned * self.zero.compute.size)
        for parameter in group:
            parameter.storage = flat
        self.flat.append(flat)
        return aligned // self.zero.ranks

    def _owned(self, sizes: list[int]) -> dict[int, tuple[int, int]]:
        """Return weights that reach into the partition, each with its group and the elements inside: for that rank to
        which they add up to the most."""
        found = [self._reaching(sizes, rank) for rank in self._ranks_that_differ(sizes)]
        numel = {id(p): p.numel for group in self.groups for p in group}
        return max(found, key=lambda owned: sum(numel[key] for key in owned))

    def _ranks_that_differ(self, sizes: list[int]) -> list[int]:
        """Return first of each run of ranks that the same weights reach into: those where one ends or begins, and those
        beside them."""
        edges = {0}
        for size, group in zip(sizes, self.groups, strict=True):
            ends = accumulate([parameter.numel for parameter in group])
            edges |= {rank for end in ends for rank in range((end - 1) // size, end // size + 2)}
        return sorted(rank for rank in edges if rank < self.zero.ranks)

    def _reaching(self, sizes: list[int], rank: int) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for number, group in enumerate(self.groups):
            start, end, at = sizes[number] * rank, sizes[number] * (rank + 1), 0
            for parameter in group:
                inside = min(end, at + parameter.numel) - max(start, at)
                if inside > 0:
                    found[id(parameter)] = (number, inside)
                at += parameter.numel
        return found

    def _pieces(self, sizes: list[int]) -> dict[int, list[tuple[int, int]]]:
        """For each weight the ranks that it belongs to, with the elements of each."""
        found: dict[int, list[tuple[int, int]]] = {}
        for size, group in zip(sizes, self.groups, strict=True):
            at = 0
            for parameter in group:
                end = at + parameter.numel
                ranks = range(at // size, (end - 1) // size + 1)
                found[id(parameter)] = [(r, min(end, size * (r + 1)) - max(at, size * r)) for r in ranks]
                at = end
        return found

    def receive(self, t: Tape, parameter: Parameter) -> None:
        """Into the bucket, or left where it is until the end of the last micro-step."""
        self._make_buckets(t)
        if self.zero.stage == 2 or (self.zero.settings.overlaps and self.exchanging):
            self._put(t, parameter)

    def _make_buckets(self, t: Tape) -> None:
        if not self.buckets and self.zero.settings.contiguous:
            count = 2 if self.zero.settings.overlaps else 1
            self.buckets = [Storage(t, self.bucket_elements * self.zero.compute.size) for _ in range(count)]
            self.index = 0

    def _put(self, t: Tape, parameter: Parameter) -> None:
        grad = parameter.grad
        assert grad is not None
        if self.elements + parameter.numel > self.bucket_elements:
            self._exchange(t)
            self.index = 1 - self.index if len(self.buckets) > 1 else 0
        if self.buckets and parameter.numel <= self.bucket_elements:
            parameter.grad = flat_tensor(self.buckets[self.index], parameter, grad.dtype)
        del grad
        self.waiting.append(parameter)
        self.elements += parameter.numel

    def _exchange(self, t: Tape) -> None:
        """Sum what waits. Pieces for different ranks are first put together into a buffer of their own."""
        if not self.waiting:
            return
        size = self.zero.compute.size
        before = t.mark("gradients", "exchanged gradients")
        if t.work is not None:
            t.work.collective("reduce", self.elements * size)
        for elements in self._copied() if self.buckets else [self.elements]:
            self.exchange_storage(t, elements * size)
        for parameter in self.waiting:
            if id(parameter) in self.owned:
                self._keep(t, parameter)
            elif self.zero.stage == 2:
                parameter.grad = None
        t.tag = before
        self.waiting.clear()
        self.elements = 0

    def _copied(self) -> list[int]:
        """Return elements of each copy that an exchange takes: runs of neighbours for the same rank are one piece, and
        pieces are put together until there are more than a bucket's. A piece by itself is summed where it is."""
        found: list[int] = []
        elements = count = 0
        last = -1
        for rank, numel in [piece for parameter in self.waiting for piece in self.pieces[id(parameter)]]:
            if elements > self.bucket_elements and rank != last:
                found += [elements] if count > 1 else []
                elements = count = 0
            count += rank != last or not count
            elements += numel
            last = rank
        return [*found, elements] if count > 1 else found

    def _keep(self, t: Tape, parameter: Parameter) -> None:
        """Keep the sum of a gradient that is this rank's: copied out of the bucket or to the host."""
        size = self.zero.compute.size
        inside = self.owned[id(parameter)][1]
        if self.zero.host_states:
            if self.exchanging:
                self.norm(t, inside, exchanged=True)
                self.check(t, parameter.numel, exchanged=True)
                self.exchange_storage(t, inside * 4)
            parameter.grad = None
            return
        if not self.zero.settings.contiguous:
            return
        if self.summed is None:
            numel = {id(p): p.numel for group in self.groups for p in group}
            self.summed = self.exchange_storage(t, sum(numel[key] for key in self.owned) * size)
        parameter.grad = flat_tensor(self.summed, parameter, self.zero.compute)

    def end_backward(self, t: Tape) -> None:
        """Exchange what is left in the bucket; take over what this rank keeps, or add it to what it has."""
        if self.zero.stage == 1 and not self.exchanging:
            return
        before = t.mark("gradients", "communication buckets")
        if self.zero.stage == 1 and not self.zero.settings.overlaps:
            for group in self.groups:
                for parameter in group:
                    if parameter.grad is not None:
                        self._put(t, parameter)
        self._exchange(t)
        if not self.kept and not self.zero.host_states:
            self.kept = [[p.grad for p in group if id(p) in self.owned and p.grad] for group in self.groups]
        self.buckets = []
        self.summed = None
        for group in self.groups:
            for parameter in group:
                parameter.grad = None
        t.tag = before

    def step(self, t: Tape) -> None:
        """Compute the norm of all; then group by group: one fp32 gradient, the optimizer, the flat weights in place."""
        if self.zero.host_states:
            return
        for look in (self.check, self.norm):
            for _, inside in self.owned.values():
                look(t, inside)
        for partition, kept in zip(self.partitions, self.kept, strict=False):
            partition.step(t, len(kept), self.zero.compute, kept.clear)
        self.kept = []
