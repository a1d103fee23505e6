"""The work of a run: every kernel that a ghost run stands for, in the order in which the host launches them.

Written by a `WorkTape`, and by the ops through `tape.work`, which is None on an ordinary tape: predictions of memory
pay nothing for it. What an op makes with `new` or `like` is taken for one kernel that streams: it writes its result and
reads about as much. Ops for which that is not so say what they really launch. How fast anything is: `variants.speed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.ghost.dtypes import DType
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.tape import Backward, Grads, Node, Tape, Tensor
from vramwise.units import whole_number


@dataclass(slots=True, eq=False)
class Kernel:
    """One launch. `dims`: (batch, m, n, k) of a product; `flops` of products and attention; bytes of all.

    `by`: who launches it: "forward" (Python, op by op), "backward" (autograd's own thread), "library" (a library's
    Python code), "triton" (Triton's launcher), "copy" (a hook that sends a tensor elsewhere). `count`: so many launches
    that are alike, or a part of one that takes many tensors. What the host goes through before it: `ops`, views and
    autograd's nodes; `calls`, modules; `hooks` of saved tensors, and
    parameters in a list of them; `functions`, autograd's functions that are written in Python;
    `lines`, lines of its log; `checkpoints`, checkpointed blocks that begin, or begin again.
    `about`: the parameter that it is for, where its mark does not say. `cudnn`: attention by cuDNN's kernel.
    `blocks`: so many blocks of threads do the work, where they may be too few for the whole card; 0: enough. `turns`:
    rows, or groups of them, that blocks, one a multiprocessor, go through one after the other. `adds`: a product is
    added to what is there.
    """

    family: str
    read: float
    written: float
    by: str
    tag: int
    dims: tuple[int, int, int, int] = (0, 0, 0, 0)
    dtype: str = ""
    flops: float = 0.0
    count: float = 1.0
    about: str = ""
    adds: bool = False
    blocks: int = 0
    turns: int = 0
    cudnn: bool = False
    ops: int = 0
    calls: int = 0
    hooks: int = 0
    functions: int = 0
    lines: int = 0
    checkpoints: int = 0


# A step that is larger is of no use to anybody: nothing that fits a card comes near it.
_MOST_KERNELS = 300_000
_MOST_PIECES = 1024
# cuDNN's backward of attention launches so many small kernels beside its own: sums over heads, casts, zeros.
_BESIDE_CUDNN = 5


def piece_of(total: int, size: int) -> int:
    """Return size of a piece where a kernel runs once for each: larger than `size` where there would be very many."""
    return max(size, -(-total // _MOST_PIECES))


class Work:
    """The list, and how ops write into it."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.kernels: list[Kernel] = []
        # where each phase begins: (position, name, step)
        self.phases: list[tuple[int, str, int]] = []
        self._made: dict[int, Kernel] = {}
        self._ops = 0
        self._calls = 0
        self._hooks = 0
        self._functions = 0
        self._lines = 0
        self._checkpoints = 0
        # cards that share the work; the micro-step after which the whole gradients of all are summed (0: none)
        self.ranks = 1
        self.sums_gradients = 0
        self._begun = -1  # micro-steps; the first "forward" is where a step's batches are made
        # autograd's own code is at work, and not a block that is run again
        self.in_autograd = False
        # a backward step that is written in Python is under way
        self.in_python = False
        # packed rows: the kernel gets the starts of samples; else every layer finds them itself
        self.told_samples = True
        # tokens of a sample, where rows hold several that do not attend to one another
        self.sample: int | None = None

    def _add(self, family: str, read: float, written: float) -> Kernel:
        t = self._tape
        by = "backward" if t.in_backward and self.in_autograd and not self.in_python else "forward"
        kernel = Kernel(family, read, written, by, t.tag)
        kernel.ops, kernel.calls, kernel.functions = self._ops, self._calls, self._functions
        kernel.lines, kernel.hooks, kernel.checkpoints = self._lines, self._hooks, self._checkpoints
        self._ops = self._calls = self._functions = self._lines = self._hooks = self._checkpoints = 0
        self.kernels.append(kernel)
        if len(self.kernels) > _MOST_KERNELS:
            raise VramwiseError(f"a step launches more than {_MOST_KERNELS:,} kernels: too many to time")
        return kernel

    def made(self, tensor: Tensor, read: float) -> None:
        """List the kernel that made a tensor; an op may correct it."""
        if tensor.storage is not None:
            written = tensor.numel * tensor.dtype.size
            self._made[tensor.storage.number] = self._add("stream", read, written)

    def begun(self, phase: str) -> None:
        """Note that a phase begins."""
        self._begun += phase == "forward"

    def op(self) -> None:
        """Count an operation of the host that launches nothing."""
        self._ops += 1

    def called(self, functions: int) -> None:
        """Count functions of modules that are called, besides those that every op takes."""
        self._calls += functions

    def hooked(self, hooks: int) -> None:
        """Count hooks of saved tensors that run."""
        self._hooks += hooks

    def function(self) -> None:
        """Count one of autograd's functions that are written in Python, forward or backward."""
        self._functions += 1

    def checkpoint(self) -> None:
        """Count a checkpointed block that begins or begins again: contexts are entered, random states kept."""
        self._checkpoints += 1

    def line(self) -> None:
        """Count a line that the host writes into its log."""
        self._lines += 1

    def of(self, tensor: Tensor | None) -> Kernel | None:
        """Return the kernel that made a tensor, to be corrected."""
        return None if tensor is None or tensor.storage is None else self._made.get(tensor.storage.number)

    def reads(self, tensor: Tensor | None, *sources: Tensor) -> None:
        """Set what the kernel that made a tensor really reads."""
        kernel = self.of(tensor)
        if kernel is not None:
            kernel.read = sum([source.numel * source.dtype.size for source in sources])

    def no_kernel(self, *tensors: Tensor | None) -> None:
        """Set that these tensors had no launch of their own: they were made beside others, or are empty."""
        for tensor in tensors:
            kernel = self.of(tensor)
            if kernel is not None:
                kernel.count = 0

    def stream(self, read: float, written: float, family: str = "stream", count: float = 1) -> Kernel:
        """Return a kernel that writes over what is there."""
        kernel = self._add(family, read, written)
        kernel.count = count
        return kernel

    def over(self, tensor: Tensor, sources: int = 1) -> None:
        """List a kernel in place: it reads the tensor and so many others like it, and writes it."""
        nbytes = tensor.numel * tensor.dtype.size
        self._add("stream", nbytes * (1 + sources), nbytes)

    def rewritten(self, tensors: Sequence[Tensor | None], family: str) -> None:
        """List one kernel of a library that reads and writes all of these in place."""
        nbytes = sum([0 if one is None else one.numel * one.dtype.size for one in tensors])
        self._add(family, nbytes, nbytes).by = "triton"

    def named(self, tensor: Tensor, family: str) -> None:
        """Set what kind of kernel made a tensor."""
        kernel = self.of(tensor)
        if kernel is not None:
            kernel.family = family

    def of_many(self, count: int, tensor: Tensor) -> None:
        """Set how many launches made a tensor."""
        kernel = self.of(tensor)
        if kernel is not None:
            kernel.count = count

    def opened(self, weight: Tensor, scales: Tensor | None, *, bits: int) -> None:
        """Set the kernels that dequantised a weight: one for its scales, if they are quantised too, and one for it."""
        kernel = self.of(weight)
        if kernel is not None:
            kernel.family, kernel.by = "dequantise", "library"
            kernel.read = weight.numel * bits / 8
        found = self.of(scales)
        if found is not None:
            found.by = "library"

    def widened(self, weight: Tensor, *, bits: int) -> None:
        """A quantised weight was cast, and is multiplied with its scales in place: plain operations, no own kernel."""
        kernel = self.of(weight)
        if kernel is not None:
            kernel.family, kernel.read = "strided", weight.numel * bits / 8
        nbytes = weight.numel * weight.dtype.size
        self.stream(nbytes, nbytes, "strided")

    def from_library(self, tensor: Tensor) -> None:
        """Set that a library's Python code launches the kernel that made a tensor."""
        kernel = self.of(tensor)
        if kernel is not None:
            kernel.by, kernel.family = "library", "stream"

    def fused(
        self,
        made: Sequence[Tensor | None],
        family: str,
        *,
        read: float,
        flops: float = 0.0,
        over: Sequence[Tensor] = (),
    ) -> Kernel:
        """Return one kernel of a library makes all of these, and writes over others."""
        written = sum([0 if one is None else one.numel * one.dtype.size for one in (*made, *over)])
        self.no_kernel(*made)
        kernel = self._add(family, read, written)
        kernel.by, kernel.flops = "triton", flops
        return kernel

    def product(self, out: Tensor | None, m: int, n: int, k: int, *, batch: int = 1, dtype: DType) -> Kernel:
        """Return matrix product (m × k) · (k × n), so many at once. `out`: what it makes; None: it is added to what is
        there."""
        kernel = self.of(out)
        size = dtype.size
        if kernel is None:
            kernel = self._add("product", 0, 0)
        kernel.family = "product"
        kernel.read = batch * size * (m * k + k * n + (m * n if out is None else 0))
        kernel.written = batch * m * n * (out.dtype.size if out is not None else size)
        kernel.flops = 2.0 * batch * m * n * k
        kernel.dims = (batch, m, n, k)
        kernel.dtype = dtype.name
        kernel.adds = out is None
        return kernel

    def into(self, m: int, n: int, k: int, *, dtype: DType) -> Kernel:
        """Return a product that is written over what is there."""
        kernel = self.product(None, m, n, k, dtype=dtype)
        kernel.read -= m * n * dtype.size
        kernel.adds = False
        return kernel

    def grouped(self, out: Tensor, m: int, n: int, k: int, groups: int, dtype: DType) -> None:
        """List a product for each group in one launch, of so many rows each: tokens are taken to spread evenly."""
        self.product(out, m, n, k, batch=groups, dtype=dtype).family = "grouped product"

    def attention(
        self,
        made: Sequence[Tensor | None],
        q: Tensor,
        k: Tensor,
        *,
        backward: bool,
        causal: bool,
        longest: int | None = None,
        cudnn: bool = False,
    ) -> None:
        """List a fused attention kernel over (batch, heads, tokens, width): two products forward, five backward.

        `longest`: so many keys that a query meets at most, where that is fewer than all.
        """
        batch, heads, queries, width = q.shape
        # a mask does not spare the kernel any work; rows known to be several samples do
        keys = min(k.shape[2], self.sample or k.shape[2], longest or k.shape[2]) if causal else k.shape[2]
        flops = (10.0 if backward else 4.0) * batch * heads * queries * keys * width
        read = q.numel * q.dtype.size * (4 if backward else 1) + 2 * k.numel * k.dtype.size
        kernel = self.fused(made, "attention backward" if backward else "attention forward", read=read)
        kernel.by = "backward" if backward else "forward"
        kernel.flops = flops / 2 if causal else flops
        kernel.dims, kernel.cudnn = (batch, heads, queries, width), cudnn
        kernel.dtype = q.dtype.name
        if cudnn and backward:
            self.stream(0, 0, count=_BESIDE_CUDNN).by = "backward"

    def written_in_python(self, backward: Backward) -> Backward:
        """Return a backward step whose kernels are launched one by one from Python, not by autograd's own thread."""

        def launched(t: Tape, node: Node, grad: Any) -> Grads:
            self.in_python = True
            self.function()
            results = backward(t, node, grad)
            self.in_python = False
            return results

        return launched

    def sync(self) -> Kernel:
        """Return the host waits until the device has done everything."""
        kernel = self._add("sync", 0, 0)
        kernel.count = 0
        return kernel

    def asked(self, times: int, small: int) -> None:
        """List that the host asks the card for a number, so many times, each after some small kernels."""
        for _ in range(times):
            self.stream(0, 0, count=small)
            self.sync()

    def wait(self) -> None:
        """List a wait for exchanges and copies that were begun before."""
        self._add("wait", 0, 0).count = 0

    def on_host(self, elements: int, size: int) -> Kernel:
        """Return the host's processors update so many parameters, and send their values to the card."""
        self.copy(elements * size, to_host=False)
        return self._add("update on the host", elements, elements)

    def copy(self, nbytes: float, *, to_host: bool) -> None:
        """List a copy between card and host memory, beside the kernels."""
        self._add("to host" if to_host else "from host", nbytes, nbytes).by = "copy"

    def collective(self, kind: str, nbytes: float) -> None:
        """An exchange with other cards, of so many bytes in all, beside the kernels: each has its own share already."""
        others = nbytes * (self.ranks - 1) / self.ranks
        self._add(kind, others, others)

    def gradient(self, grad: Tensor) -> None:
        """List the sum of a gradient over all cards, in two turns, if they all hold the whole model."""
        if self.sums_gradients and self._begun == self.sums_gradients:
            self.collective("reduce", 2 * grad.numel * grad.dtype.size)


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
        """Return a new tensor, and the kernel that fills it."""
        out = super().new(shape, dtype)
        self.work.made(out, out.numel * dtype.size)
        return out

    def like(self, tensor: Tensor, dtype: DType | None = None) -> Tensor:
        """Return a new tensor of the same shape, and the kernel that fills it from the other."""
        out = super().like(tensor, dtype)
        self.work.made(out, tensor.numel * tensor.dtype.size)
        if out.dtype.size > tensor.dtype.size:
            self.work.named(out, "strided")  # casts to wider types go element by element
        return out

    def node(self, backward: Backward, inputs: tuple[Tensor, ...], saved: tuple[Tensor | None, ...]) -> Node:
        """Return the backward step of an op: the host makes it."""
        self.work.op()
        if self.frame is not None:
            # a hook for each tensor: when it is saved, and when one that was saved in backward is asked for
            hooks = sum([one is not None for one in saved])
            self.work.hooked(2 * hooks if self.in_backward else hooks)
        return super().node(backward, inputs, saved)

    def mark(self, category: str, label: str) -> int:
        """Return what follows is for something else: a part of a block is some modules."""
        if label.endswith(_PARTS):
            self.work.in_autograd = False
            self.work.called(_MODULES)
        return super().mark(category, label)

    def mark_backward(self, tag: int) -> None:
        """Note that a backward step begins."""
        self.work.op()
        self.work.in_autograd = True
        super().mark_backward(tag)

    def phase(self, name: str, step: int) -> None:
        """Note that the run enters a phase."""
        super().phase(name, step)
        self.work.begun(name)
        self.work.phases.append((len(self.work.kernels), name, step))

    def layer_of(self, tag: int) -> int | None:
        """Return number of the model's layer that a mark stands for; −1: wherever the run was before; None: none."""
        label = self.tags[tag].label.removesuffix(": backward")
        if label.endswith((*_IN_PASSING, *_EXCHANGED)):
            return -1
        part = label.partition(":")[0]
        return whole_number(part.rpartition(".")[2]) if part != label else None
