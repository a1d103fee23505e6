"""A tape that lists kernels besides allocations.

What an op makes with `new` or `like` is taken for one kernel that streams: it writes its result and reads about as
much. Ops for which that is not so say what they really launch, through `tape.work`, which is None on an ordinary tape:
predictions of memory pay nothing for it.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import DType
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.tape import Backward, Node, Tape, Tensor
from vramwise.ghost.work import Work
from vramwise.units import whole_number

# Marks that say nothing about where in the model the run is: what they stand for belongs to what was before.
_IN_PASSING = ("autocast copies of weights", "brought back from the host", "matrix multiplication workspace")
# Parts of a block, and the modules of one that are gone through besides its linear layers: itself, its norm, its own.
_PARTS, _MODULES = (": attention", ": mlp"), 3
_EXCHANGED = ("gathered weights", "exchanged gradients", "communication buckets")


class WorkTape(Tape):
    """A tape that lists kernels too."""

    work: Work

    def __init__(self, hardware: Hardware) -> None:
        super().__init__(hardware)
        self.work = Work(self)

    def new(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """A new tensor, and the kernel that fills it."""
        out = super().new(shape, dtype)
        self.work.made(out, out.numel * dtype.size)
        return out

    def like(self, tensor: Tensor, dtype: DType | None = None) -> Tensor:
        """A new tensor of the same shape, and the kernel that fills it from the other."""
        out = super().like(tensor, dtype)
        self.work.made(out, tensor.numel * tensor.dtype.size)
        if out.dtype.size > tensor.dtype.size:
            self.work.named(out, "strided")  # casts to wider types go element by element
        return out

    def node(self, backward: Backward, inputs: tuple[Tensor, ...], saved: tuple[Tensor | None, ...]) -> Node:
        """The backward step of an op: the host makes it."""
        self.work.op()
        if self.frame is not None:
            # a hook for each tensor: when it is saved, and when one that was saved in backward is asked for
            hooks = sum([one is not None for one in saved])
            self.work.hooked(2 * hooks if self.in_backward else hooks)
        return super().node(backward, inputs, saved)

    def mark(self, category: str, label: str) -> int:
        """What follows is for something else: a part of a block is some modules."""
        if label.endswith(_PARTS):
            self.work.in_autograd = False
            self.work.called(_MODULES)
        return super().mark(category, label)

    def mark_backward(self, tag: int) -> None:
        """A backward step begins."""
        self.work.op()
        self.work.in_autograd = True
        super().mark_backward(tag)

    def phase(self, name: str, step: int) -> None:
        """The run enters a phase."""
        super().phase(name, step)
        self.work.begun(name)
        self.work.phases.append((len(self.work.kernels), name, step))

    def layer_of(self, tag: int) -> int | None:
        """The number of the model's layer that a mark stands for; −1: wherever the run was before; None: none."""
        label = self.tags[tag].label.removesuffix(": backward")
        if label.endswith((*_IN_PASSING, *_EXCHANGED)):
            return -1
        part = label.partition(":")[0]
        return whole_number(part.rpartition(".")[2]) if part != label else None
