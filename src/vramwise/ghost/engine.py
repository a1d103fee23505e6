"""Backward: runs a graph of nodes in the order torch's autograd engine does, freeing what it frees when it does.

Within one step results are made first, broadcast ones summed down, then the incoming gradient is dropped, then what the
node saved; only then are the results handed on (torch/csrc/autograd/engine.cpp, evaluate_function).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from vramwise.ghost.ops.reduce import bring_to_expected
from vramwise.ghost.tape import LEAF, Node, Tape, Tensor


def backward(t: Tape, root: Node, grad: Tensor) -> None:
    """Run the graph from `root`: of the nodes that are ready, the one made last goes first."""
    _count_uses(root)
    root.inputs = [grad]
    grad.holders += 1
    del grad
    ready: list[tuple[int, int, Node]] = [(-root.order, 0, root)]
    arrivals = 0
    while ready:
        node = heappop(ready)[2]
        received, node.inputs = node.inputs, None
        assert received is not None
        t.mark_backward(node.tag)
        frame = node.frame
        if frame is not None:
            node.saved = frame.unpack(t, node)
        results = list(node.backward(t, node, received[0]) if len(received) == 1 else node.backward(t, node, received))
        if frame is not None:
            _release_unpacked(node)
            frame.finished()
            frame = None
        if node.expected:
            bring_to_expected(t, node.expected, results)
        _let_go(received)
        del received
        node.saved = ()
        node.extra = None
        node.frame = None
        # all are counted before the first of them is delivered
        for result, edge in zip(results, node.edges, strict=True):
            if result is not None and edge is not None:
                result.holders += 1
        result = None
        for position, edge in enumerate(node.edges):
            if edge is None:
                continue
            target = edge[0]
            _deliver(t, target, edge[1], results, position)
            target.waiting -= 1
            if target.waiting:
                continue
            if target.order == LEAF:
                # its place in the queue is always the first
                gathered, target.inputs = target.inputs, None
                target.backward(t, target, gathered[0] if gathered else None)
                _let_go(gathered or ())
                del gathered
            else:
                arrivals += 1
                heappush(ready, (-target.order, arrivals, target))
        node.edges = []


def _release_unpacked(node: Node) -> None:
    """Drop the tensors that were unpacked for a step, and the node's own hold on them."""
    held = node.saved
    assert isinstance(held, list)
    for position in range(len(held)):
        held[position] = None
    node.saved = ()


def _let_go(received: Sequence[Tensor | None]) -> None:
    """Note that a node holds these gradients no longer."""
    for grad in received:
        if grad is not None:
            grad.holders -= 1


def _deliver(t: Tape, target: Node, slot: int, results: list[Tensor | None], position: int) -> None:
    """Give a gradient to the node that waits for it.

    A second one for the same place is added to the first: in place if nobody else holds the first, else in a new tensor
    (torch/csrc/autograd/input_buffer.cpp, accumulate).
    """
    inputs = target.inputs
    if inputs is None:
        inputs = target.inputs = [None]
    while len(inputs) <= slot:
        inputs.append(None)
    present, result = inputs[slot], results[position]
    results[position] = None
    if present is None:
        inputs[slot] = result
        return
    if result is not None:
        result.holders -= 1
    if result is not None and (present.view or present.holders > 1):
        present.holders -= 1
        inputs[slot] = both = t.like(present)
        both.holders = 1
        if t.work is not None:
            t.work.reads(both, present, present)
    elif t.work is not None:
        t.work.over(present)
    # the sum is made: what was added goes after what it was added to
    del present
    del result


def _count_uses(root: Node) -> None:
    """Count, for every node that the root reaches, how many gradients it must wait for."""
    seen = {root}
    pending = [root]
    while pending:
        for edge in pending.pop().edges:
            if edge is None:
                continue
            target = edge[0]
            if target in seen:
                target.waiting += 1
            else:
                seen.add(target)
                target.waiting = 1
                pending.append(target)
