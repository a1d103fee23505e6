"""Activation checkpointing: a block is run without a graph, and once more, with one, when its gradient arrives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vramwise.ghost.dtypes import DType
from vramwise.ghost.engine import backward
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.tape import Backward, Grads, Leaf, Node, Tape, Tensor

Block = Callable[..., Tensor]  # of the tape and its inputs
Checkpoint = Callable[..., Tensor]  # of the tape, a block and its inputs


def _rerun(t: Tape, block: Block, inputs: Sequence[Tensor], amp: DType | None) -> Tensor:
    """Return the result of running a block again, under an autocast context of its own."""
    if t.work is not None:
        t.work.checkpoint()
    outer, outer_casts = t.autocast, t.casts
    t.autocast, t.casts = amp, {}
    t.grad_enabled = True
    try:
        return block(t, *inputs)
    finally:
        t.autocast, t.casts = outer, outer_casts


def _recompute(t: Tape, node: Node, grad: Tensor) -> Grads:
    block, amp = node.extra
    detached = [_leaf(x, wanted=edge is not None) for x, edge in zip(node.saved[::-1], node.edges, strict=True)]
    holds, t.graph_holds = t.graph_holds, []
    outputs = _rerun(t, block, detached, amp)
    assert outputs.node is not None
    t.nested += 1
    backward(t, outputs.node, grad)
    t.nested -= 1
    t.graph_holds = holds
    return tuple([leaf.taken_grad() for leaf in detached])


def _leaf(x: Tensor, *, wanted: bool) -> Leaf:
    leaf = Leaf(x.storage, x.shape, x.numel, x.dtype)
    if wanted:
        leaf.require_grad()
    return leaf


def reentrant(t: Tape, block: Block, *inputs: Tensor) -> Tensor:
    """Return the result of `checkpoint(block, *inputs, use_reentrant=True)`, which keeps the inputs alone."""
    if not t.grad_enabled or not t.training:
        return block(t, *inputs)
    if t.work is not None:
        t.work.checkpoint()
    t.grad_enabled = False
    out = block(t, *inputs)
    t.grad_enabled = True
    if any(x.node is not None for x in inputs):
        node = _saving_input(t, inputs, inputs)
        node.extra = (block, t.autocast)
        out.node = node
    return out


def _saving_input(t: Tape, edges: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> Node:
    """Return the node that saves a block's inputs, through the frame for such inputs if there is one."""
    outer, t.frame = t.frame, t.checkpoint_frame or t.frame
    node = t.node(_recompute, edges, inputs)
    t.frame = outer
    return node


def reruns(backward: Backward) -> bool:
    """Return whether this is the backward step of a checkpointed block."""
    return backward is _recompute


class _Enough(Exception):  # noqa: N818 - not an error: recomputation has everything it needs
    """Raised in the second run when everything that the first run saved has been made again."""


class _Frame:
    """A checkpointed block without reentry: its ops save numbers instead of tensors, until one of them is asked for."""

    __slots__ = ("amp", "block", "brought", "count", "inputs", "kept", "rerunning", "total")

    def __init__(self, block: Block, inputs: Node, amp: DType | None) -> None:
        self.block = block
        self.inputs = inputs  # a node that saves the block's input, and does nothing else
        self.amp = amp
        self.total = 0
        self.count = 0
        self.rerunning = False
        self.brought = False  # the input, for the step that is under way
        self.kept: dict[int, Tensor | None] = {}

    def pack(self, saved: tuple[Tensor | None, ...], _backward: Backward) -> tuple[Any, ...]:
        """Return numbers for the tensors in the first run; in the second keep them, until the last one is made."""
        if not self.rerunning:
            numbers = tuple(range(self.total, self.total + len(saved)))
            self.total += len(saved)
            return numbers
        for tensor in saved:
            self.kept[self.count] = None if tensor is None else without_node(tensor)
            self.count += 1
        if self.count == self.total:
            raise _Enough
        return ()

    def unpack(self, t: Tape, node: Node) -> list[Tensor | None]:
        """Return what the node saved, after running the block again if that has not been done."""
        if not self.rerunning:
            self.rerunning = True
            self._rerun(t)
        return [self.kept.pop(number) for number in node.saved]

    def _rerun(self, t: Tape) -> None:
        start, tag = len(t.events), t.tag
        outer = t.frame, t.grad_enabled
        holds, t.graph_holds = t.graph_holds, []
        t.frame = self
        try:
            _rerun(t, self.block, [self._input(t)], self.amp)
        except _Enough:
            forget = self._unmade(t)
        else:
            forget = -1
        t.frame, t.grad_enabled = outer
        t.graph_holds = holds  # what the second run's graph held goes with it
        t.mark_backward(tag)
        if forget >= 0:
            t.events[start:] = [event for event in t.events[start:] if event[1] != forget or event[0] > 1]

    def _input(self, t: Tape) -> Tensor:
        if self.inputs.frame is None:
            kept: Tensor = self.inputs.saved[0]
            return kept
        found = self.inputs.frame.unpack(t, self.inputs)[0]
        self.inputs.saved = ()
        self.brought = True
        assert found is not None
        return _leaf(found, wanted=True)

    def finished(self) -> None:
        """Tell the input's own frame that the step is done."""
        if self.brought and self.inputs.frame is not None:
            self.brought = False
            self.inputs.frame.finished()

    def _unmade(self, t: Tape) -> int:
        """Return the number of the last op's result, which the real run never makes; -1 if it was saved itself.

        The second run ends when an op has saved its inputs, which is before it makes its result.
        """
        last = t.count - 1
        kept = {tensor.storage.number for tensor in self.kept.values() if tensor is not None and tensor.storage}
        return -1 if last in kept else last


def non_reentrant(t: Tape, block: Block, x: Tensor, *more: Tensor) -> Tensor:
    """Return the result of `checkpoint(block, x, use_reentrant=False)`: the graph keeps nothing that it saves."""
    if more:
        block = _with(block, more)
        del more
    if not t.grad_enabled or not t.training:
        return block(t, x)
    if t.work is not None:
        t.work.checkpoint()
    outer = t.frame
    frame = _Frame(block, _saving_input(t, (), (x,)), t.autocast)
    t.frame = frame
    out = block(t, x)
    t.frame = outer
    return out


def _with(block: Block, more: tuple[Tensor, ...]) -> Block:
    """Return the block as a function of its first input; it holds the others."""

    def run(t: Tape, x: Tensor) -> Tensor:
        return block(t, x, *more)

    return run
