"""ZeRO 3: every weight is cut into shares; `zero_fetch` brings the whole ones together around their use.

Shares of trained weights lie in one flat buffer, and so do the shares of their gradients, which are there from the
start. One bucket is kept all the time. A full bucket is cut, put together anew rank by rank in another buffer, and
summed into this rank's shares, which are copied or added to the flat ones. The step takes one sub-group after the
other: with a size of nought, as often written, each weight is one.
"""

from __future__ import annotations

from vramwise.ghost.sharding.zero import Zero
from vramwise.ghost.sharding.zero_engine import ZeroEngine, flat_tensor
from vramwise.ghost.sharding.zero_fetch import Coordinator
from vramwise.ghost.tape import Parameter, Storage, Tape
from vramwise.ghost.weights import Weights

# passes over the model: the first records it, the second is the first to keep small weights
_SETTLED = 2


class SpreadEngine(ZeroEngine):
    """The optimizer of stage 3."""

    def __init__(self, weights: Weights, zero: Zero) -> None:
        super().__init__(weights, zero)
        self.coordinator = Coordinator(self.zero)

    def build(self, t: Tape) -> None:
        """Cut what is whole, put shares together, and make the buffers that stay."""
        zero, size = self.zero, self.zero.compute.size
        self._cut(t)
        self._put_together(t)
        self.sub_groups = [sub for group in self.groups for sub in self._sub_groups(group)]
        sizes = [sum(zero.share(p.numel) for p in sub) for sub in self.sub_groups]
        for elements in sizes:
            self.make_partition(t, elements, copies=2)
        if not zero.host_states:
            t.mark("optimizer", "fp32 gradients, made once")
            Storage(t, max(sizes) * 4)
        t.mark("gradients", "communication buckets")
        self.bucket = Storage(t, self.bucket_elements * size) if zero.settings.contiguous else None
        t.mark("gradients", "shares of gradients")
        wide = 4 if zero.settings.wide_sums else size
        self.sums = None if zero.host_states else Storage(t, sum(sizes) * wide)
        for group in self.groups:
            for parameter in group:
                # gathered to hang a hook on it, even by a rank that is alone
                nbytes = zero.share(parameter.numel) * parameter.dtype.size
                whole = Storage(t, nbytes * zero.ranks)
                if zero.host_weights:
                    Storage(t, nbytes)  # its own share comes from the host
                del whole

    @property
    def repeats(self) -> bool:
        """Not before small weights are there at the beginning of a pass as at its end."""
        return not self.exchanging and self.coordinator.passes > _SETTLED

    def carried(self) -> list[Storage]:
        """Small weights, which stay gathered from one step to the next."""
        found = [spread.whole for spread in self.coordinator.all.values()]
        return [whole for whole in found if isinstance(whole, Storage)]

    def _cut(self, t: Tape) -> None:
        """Cut what was loaded whole: quantised models, and adapters, which are made after the model."""
        zero, weights = self.zero, self.weights
        for name, kept in weights.quantised.items():
            if name in weights.packed_bytes:
                t.mark("weights", name)
                share = None if zero.host_weights else Storage(t, zero.share(weights.packed_bytes[name]))
                whole = 0 if weights.run.loading.loads_through == "host" else 1
                kept[:whole] = [] if share is None else [share]
        rest = [p for pair in weights.adapters.values() for p in pair] + [*weights.magnitudes.values()]
        if weights.run.loading.quantization is not None:
            rest += {id(p): p for p in weights.by_name.values()}.values()
        for parameter in rest:
            t.mark("weights", parameter.name)
            size = zero.share(parameter.numel) * parameter.dtype.size
            parameter.storage = None if zero.host_weights else Storage(t, size)

    def _put_together(self, t: Tape) -> None:
        """Trained shares go to the host and come back as one buffer."""
        if self.zero.host_weights:
            return
        trained = [parameter for group in self.groups for parameter in group]
        for parameter in trained:
            parameter.storage = None
        t.empty_cache()
        t.mark("weights", "flat shares")
        flat = Storage(t, sum(self.zero.share(p.numel) * p.dtype.size for p in trained))
        for parameter in trained:
            parameter.storage = flat

    def _sub_groups(self, group: list[Parameter]) -> list[list[Parameter]]:
        """Return a group cut where a sub-group is full."""
        limit = self.zero.settings.sub_group
        if limit >= sum(self.zero.share(p.numel) for p in group):
            return [group]
        found: list[list[Parameter]] = [[]]
        for parameter in group:
            if sum(self.zero.share(p.numel) for p in found[-1]) >= limit and found[-1]:
                found.append([])
            found[-1].append(parameter)
        return found

    def receive(self, t: Tape, parameter: Parameter) -> None:
        """Into the bucket, if there is room in it."""
        grad = parameter.grad
        assert grad is not None
        if self.waiting and self.elements + parameter.numel > self.bucket_elements:
            self._exchange(t)
        if self.bucket is not None and self.elements + parameter.numel <= self.bucket_elements:
            parameter.grad = flat_tensor(self.bucket, parameter, grad.dtype)
        del grad
        self.waiting.append(parameter)
        self.elements += parameter.numel

    def _exchange(self, t: Tape) -> None:
        """Sum what waits into the shares. One gradient alone that can be cut evenly is summed where it is."""
        if not self.waiting:
            return
        zero, size = self.zero, self.zero.compute.size
        before = t.mark("gradients", "exchanged gradients")
        alone = len(self.waiting) == 1 and self.waiting[0].numel % zero.ranks == 0
        elements = sum(zero.share(p.numel) * zero.ranks for p in self.waiting)
        # gradients of weights that came from the host in fp32 are cast to the type they are exchanged in
        taken = not alone or zero.wide_host_weights
        mixed = self.exchange_storage(t, elements * size) if taken else None
        if t.work is not None:
            t.work.collective("reduce", elements * size)
        for parameter in self.waiting:
            share = zero.share(parameter.numel)
            if zero.host_states:
                here = self.exchange_storage(t, share * size)
                if self.exchanging:
                    self.norm(t, share, exchanged=True)
                    self.exchange_storage(t, share * 4)
                del here
            parameter.grad = None
        del mixed
        t.tag = before
        self.waiting.clear()
        self.elements = 0

    def begin_forward(self, t: Tape) -> None:
        """Begin a new pass over the modules."""
        self.coordinator.reset()
        self.coordinator.begin_forward(t)

    def end_forward(self) -> None:
        """Free what was used outside of its own module."""
        self.coordinator.end_forward()

    def begin_backward(self, t: Tape) -> None:
        """Gather what is used outside of its own module again."""
        self.coordinator.begin_backward(t)

    def end_backward(self, t: Tape) -> None:
        """Exchange the rest of the bucket, and release modules whose inputs want no gradient."""
        self._exchange(t)
        self.coordinator.release_leftovers()

    def step(self, t: Tape) -> None:
        """Nothing stays gathered; norms, then one sub-group after the other; small weights are gathered again."""
        self.coordinator.release_all()
        if not self.zero.host_states:
            for group in self.groups:
                for parameter in group:
                    self.norm(t, self.zero.share(parameter.numel))
            for partition, sub in zip(self.partitions, self.sub_groups, strict=True):
                partition.step(t, len(sub), self.zero.compute, _nothing)
        self.coordinator.gather_small(t)


def _nothing() -> None:
    """The shares of gradients lie in a buffer that stays."""
