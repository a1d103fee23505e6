"""What all stages of ZeRO share: the engine casts the model, takes gradients as they come, and steps partitions.

An engine has the same methods as FSDP's units, so that a run calls both in the same way. A partition is a flat fp32
weight that DeepSpeed puts in the place of each group, whatever optimizer the trainer makes: 8-bit and paged optimizers
keep their kind of states for it, and know nothing any more of embeddings or of small weights.
"""

from __future__ import annotations

from collections.abc import Callable

from vramwise.ghost.dtypes import FP32, DType
from vramwise.ghost.optimizers import optimizer_named
from vramwise.ghost.optimizers.base import Optimizer, Trained, trained
from vramwise.ghost.sharding import REDUCE_STREAM, StreamStorage
from vramwise.ghost.sharding.zero import Zero
from vramwise.ghost.tape import Grads, Node, Parameter, Storage, Tape, Tensor
from vramwise.ghost.weights import Weights

Maker = Callable[[Trained], Optimizer]


class Partition:
    """A flat fp32 weight, and the optimizer that steps it."""

    __slots__ = ("elements", "optimizer", "weight")

    def __init__(self, t: Tape, number: int, elements: int, make: Maker) -> None:
        self.elements = elements
        self.weight = Parameter(t, f"partition {number}", (elements,), FP32, trainable=False, stored=0)
        self.optimizer = make(Trained(decayed=[self.weight], plain=[]))

    def hold_master(self, t: Tape, dtype: DType, *, copies: int, from_host: bool) -> None:
        """Make the fp32 weights: cloned and then cast (1), or cast and then cloned (2), from weights of that type.

        Those that are fp32 already are taken as they are, unless they come from the host.
        """
        t.mark("optimizer", "fp32 weights of the partition")
        if dtype is FP32 and not from_host:
            self.weight.storage = Storage(t, self.elements * FP32.size)
            return
        first = Storage(t, self.elements * (dtype.size if copies == 1 else FP32.size))
        self.weight.storage = Storage(t, self.elements * FP32.size)
        del first

    def step(self, t: Tape, pieces: int, dtype: DType, release: Callable[[], None]) -> None:
        """The gradient's pieces become one, and that one fp32; only then do they go. States come at the first step."""
        t.mark("temporary", "fp32 gradients of the partition")
        flat = Storage(t, self.elements * dtype.size) if pieces > 1 else None
        wide = Storage(t, self.elements * FP32.size) if dtype is not FP32 or flat is None else flat
        del flat
        release()
        self.weight.grad = Tensor(wide, (self.elements,), self.elements, FP32)
        del wide
        self.optimizer.step(t)
        self.weight.grad = None


# norms are computed of copies in fp64
_NORM_BYTES = 8


class ZeroEngine:
    """One rank's engine. `prepare` is `deepspeed.initialize`; `step` makes it the run's optimizer."""

    def __init__(self, weights: Weights, zero: Zero) -> None:
        self.weights = weights
        self.zero = zero.sized(weights.model.hidden_size)
        # False while gradients accumulate
        self.exchanging = True
        self.groups: list[list[Parameter]] = []
        self.partitions: list[Partition] = []
        # what waits in the bucket to be exchanged
        self.waiting: list[Parameter] = []
        self.elements = 0

    @property
    def bucket_elements(self) -> int:
        """Return how many elements of gradients are exchanged at a time."""
        size = self.zero.settings.reduce_bucket
        assert size is not None
        return size

    @property
    def repeats(self) -> bool:
        """Return whether a micro-step makes the same requests as the one before it."""
        return not self.exchanging

    def carried(self) -> list[Storage]:
        """Return the storages that outlive a step and are made anew in each."""
        return []

    def prepare(self, t: Tape, trainable: list[Parameter]) -> None:
        """Cast the whole model to the engine's type, then do what the stage needs."""
        self._cast(t)
        self.groups = [group for group in trained(trainable).groups if group]
        for parameter in trainable:
            assert parameter.node is not None
            parameter.node.backward = self._collect
        self.build(t)

    def _cast(self, t: Tape) -> None:
        """Cast one weight after the other."""
        weights, dtype = self.weights, FP32 if self.zero.wide_host_weights else self.zero.compute
        if self.zero.leaves_adapters and not self.zero.wide_host_weights:
            return
        held = [*weights.by_name.values(), *weights.replaced]
        held += [p for pair in weights.adapters.values() for p in pair] + [*weights.magnitudes.values()]
        for parameter in {id(p): p for p in held}.values():
            if parameter.dtype is dtype or not parameter.dtype.floating:
                continue
            if parameter.storage is not None:
                t.mark("weights", parameter.name)
                parameter.storage = Storage(t, parameter.storage.nbytes // parameter.dtype.size * dtype.size)
            parameter.dtype = parameter.state_dtype = dtype

    def build(self, t: Tape) -> None:
        """Make flat weights, partitions and buffers."""
        raise NotImplementedError

    def receive(self, t: Tape, parameter: Parameter) -> None:
        """Take a gradient that backward has computed."""
        raise NotImplementedError

    def step(self, t: Tape) -> None:
        """Run the optimizer's step."""
        raise NotImplementedError

    def begin_forward(self, t: Tape) -> None:
        """Called before the model's forward."""

    def end_forward(self) -> None:
        """Called after the model's forward."""

    def begin_backward(self, t: Tape) -> None:
        """Called before backward."""

    def end_backward(self, t: Tape) -> None:
        """Called after backward."""

    def end_evaluation(self) -> None:
        """Called after an evaluation."""

    def make_partition(self, t: Tape, elements: int, *, copies: int) -> Partition:
        """Return a new partition, with its fp32 weights on the device or on the host."""
        zero = self.zero
        made = Partition(t, len(self.partitions), elements, lambda held: optimizer_named(zero.optimizer, held))
        if zero.host_states:
            if copies == 1:
                Storage(t, elements * zero.compute.size)  # cloned here, then moved
        else:
            made.hold_master(t, self.groups[0][0].dtype, copies=copies, from_host=zero.host_weights)
        self.partitions.append(made)
        return made

    def exchange_storage(self, t: Tape, nbytes: int) -> Storage:
        """Return memory for an exchange, on the stream that exchanges run on."""
        return StreamStorage(t, nbytes, REDUCE_STREAM) if self.zero.settings.overlaps else Storage(t, nbytes)

    def norm(self, t: Tape, elements: int, *, exchanged: bool = False) -> None:
        """Compute the norm of one gradient. `exchanged`: on the stream of exchanges, for states on the host."""
        before = t.mark("temporary", "gradient norm")
        (self.exchange_storage if exchanged else Storage)(t, elements * _NORM_BYTES)
        t.tag = before

    def check(self, t: Tape, elements: int, *, exchanged: bool = False) -> None:
        """Check a gradient for NaN and infinity, if that takes copies: one in fp32, three masks, a mask in fp32."""
        if self.zero.checks_by_copies:
            new = self.exchange_storage if exchanged else Storage
            before = t.mark("temporary", "check for overflow")
            wide = new(t, 4 * elements)
            masks = [new(t, elements) for _ in range(3)]
            new(t, 4 * elements)
            del wide, masks
            t.tag = before

    def _collect(self, t: Tape, node: Node, grad: Tensor | None) -> Grads:
        """Take a gradient from autograd: the first as it is, later ones are added to it."""
        parameter: Parameter | None = node.extra()
        if parameter is None or grad is None:
            return ()
        if parameter.grad is None:
            if grad.storage is not None:
                t.retag(grad.storage, "gradients", parameter.name)
            parameter.grad = grad
            grad.holders += 1
        elif t.work is not None:
            t.work.over(grad)
        del grad
        before = t.mark("gradients", "communication buckets")
        self.receive(t, parameter)
        t.tag = before
        return ()


def flat_tensor(storage: Storage, parameter: Parameter, dtype: DType) -> Tensor:
    """Return a gradient that is a part of a larger buffer."""
    return Tensor(storage, parameter.shape, parameter.numel, dtype)
