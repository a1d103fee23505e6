"""Tensors without values: storages that write down when they are made and freed, and autograd's nodes.

The tape (`tape.py`) lists what they write. *Whose* references keep a storage is Python's own business: see there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from vramwise.errors import VramwiseError
from vramwise.ghost.dtypes import DType
from vramwise.timeline import Action, Event

if TYPE_CHECKING:
    from vramwise.ghost.tape import Tape

_make = tuple.__new__
_ALLOC = int(Action.ALLOC)
_FREE = int(Action.FREE)

# AccumulateGrad nodes run before anything else that is ready (their sequence number is the largest).
LEAF = 1 << 60

# Three times what the largest runs of known models ask for; their events fill some hundred megabytes.
MOST_ALLOCATIONS = 1_500_000
_TOO_MANY = (
    f"the run makes more than {MOST_ALLOCATIONS:,} allocations, too many to predict: look for a value that is far too "
    "large (experts, layers, loss chunks, steps)"
)


class Storage:
    """A block of device memory: allocated when made, freed when the last reference goes."""

    __slots__ = ("event", "events", "nbytes", "number")

    def __init__(self, tape: Tape, nbytes: int) -> None:
        events = tape.events
        self.events = events
        self.nbytes = nbytes
        self.number = number = tape.count
        self.event = len(events)
        if number > MOST_ALLOCATIONS:
            raise VramwiseError(_TOO_MANY)
        tape.count = number + 1
        events.append(_make(Event, (_ALLOC, number, nbytes, 0, tape.tag)))

    def __del__(self) -> None:
        self.events.append(_make(Event, (_FREE, self.number, self.nbytes, 0, 0)))


class Tensor:
    """A shape, a type and a storage (None on another device). `node` is set where a gradient is wanted.

    `view`: made by a view op; autograd does not accumulate into such a gradient in place.
    `heads_first`: memory runs over heads before tokens (batch, head, token, dim): flattening it to tokens needs a copy.
    `holders`: of a gradient, how many nodes and leaves hold it or are about to get it.
    """

    __slots__ = ("dtype", "heads_first", "holders", "node", "numel", "shape", "slot", "storage", "view")

    def __init__(self, storage: Storage | None, shape: tuple[int, ...], numel: int, dtype: DType) -> None:
        self.storage = storage
        self.shape = shape
        self.numel = numel
        self.dtype = dtype
        self.node: Node | None = None
        self.slot = 0
        self.view = False
        self.heads_first = False
        self.holders = 0


Grads = tuple["Tensor | None", ...]
# gets the gradient of the op's result (a list of them where it has several results)
Backward = Callable[["Tape", "Node", Any], Grads]


class Node:
    """A backward step: what it saved, where its results go. `inputs` collects the gradients of the op's outputs."""

    __slots__ = ("backward", "edges", "expected", "extra", "frame", "inputs", "order", "saved", "tag", "waiting")

    def __init__(self, order: int, backward: Backward) -> None:
        self.order = order
        self.backward = backward
        # what the op was for: its gradients are labelled after it
        self.tag = 0
        self.edges: list[tuple[Node, int] | None] = []
        self.saved: Any = ()
        # shape and type of each input where they differ among them: the engine brings the gradients to these
        self.expected: tuple[tuple[tuple[int, ...], DType], ...] = ()
        self.inputs: list[Tensor | None] | None = None
        self.waiting = 0
        self.extra: Any = None
        # where the saved tensors are to be had instead: a checkpointed block that runs again on demand
        self.frame: Frame | None = None


class Frame(Protocol):
    """Takes the place of saved tensors: `pack` when an op saves them, `unpack` when its backward needs them."""

    def pack(self, saved: tuple[Tensor | None, ...], backward: Backward) -> tuple[Any, ...]:
        """Keep them elsewhere, or not at all."""
        ...

    def unpack(self, t: Tape, node: Node) -> list[Tensor | None]:
        """Get them back."""
        ...

    def finished(self) -> None:
        """Note that the step that unpacked last is done."""
        ...


class Leaf(Tensor):
    """A tensor that is no op's result and wants a gradient: its node puts it into `grad`."""

    __slots__ = ("__weakref__", "grad")

    def __init__(self, storage: Storage | None, shape: tuple[int, ...], numel: int, dtype: DType) -> None:
        super().__init__(storage, shape, numel, dtype)
        self.grad: Tensor | None = None

    def require_grad(self) -> None:
        """Give it the node that collects its gradient. The node knows the leaf only weakly: no reference cycle."""
        node = Node(LEAF, _accumulate_grad)
        node.extra = ref(self)
        self.node = node

    def taken_grad(self) -> Tensor | None:
        """Return its gradient, which it holds no longer."""
        grad, self.grad = self.grad, None
        if grad is not None:
            grad.holders -= 1
        return grad


class Parameter(Leaf):
    """A weight: a leaf with a name, made once and kept.

    `stored`: the elements that are on this device, where it is not all of them. `local`: the elements whose gradient
    and optimizer states this rank keeps, in `state_dtype`.
    """

    __slots__ = ("local", "name", "state_dtype")

    def __init__(
        self,
        tape: Tape,
        name: str,
        shape: tuple[int, ...],
        dtype: DType,
        *,
        trainable: bool,
        stored: int | None = None,
    ) -> None:
        numel = 1
        for side in shape:
            numel *= side
        held = numel if stored is None else stored
        super().__init__(Storage(tape, held * dtype.size) if held else None, shape, numel, dtype)
        self.name = name
        self.local = numel
        self.state_dtype = dtype
        if trainable:
            self.require_grad()


def _accumulate_grad(tape: Tape, node: Node, grad: Tensor | None) -> Grads:
    """Return the first gradient of a leaf is taken over as it is, later ones are added to it in place."""
    leaf = node.extra()
    if leaf is None or grad is None or leaf.grad is not None:
        if tape.work is not None and leaf is not None and grad is not None:
            tape.work.over(leaf.grad)
            tape.work.gradient(leaf.grad)
        return ()
    if isinstance(leaf, Parameter):
        if leaf.local != leaf.numel:
            # the rank keeps its share; the rest goes with the caller's reference
            grad = tape.new((leaf.local,), leaf.state_dtype)
        if grad.storage is not None:
            tape.retag(grad.storage, "gradients", leaf.name)
    leaf.grad = grad
    grad.holders += 1
    if tape.work is not None:
        tape.work.gradient(grad)
    return ()
