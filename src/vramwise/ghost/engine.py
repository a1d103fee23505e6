"""Backward: runs a graph of nodes in the order torch's autograd engine does, freeing what it frees when it does.

Within one step results are made first, broadcast ones summed down, then the incoming gradient is dropped, then what the
node saved; only then are the results handed on (torch/csrc/autograd/engine.cpp, evaluate_function).
"""

from __future__ import annotations

from heapq import heappop, heappush
from sys import getrefcount

from vramwise.ghost.ops.reduce import bring_to_expected
from vramwise.ghost.tape import LEAF, Node, Tape, Tensor


def backward(t: Tape, root: Node, grad: Tensor) -> None:
    """Run the graph from `root`: of the nodes that are ready, the one made last goes first."""
    _count_uses(root)
    root.inputs = [grad]
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
        del received
        node.saved = ()
        node.extra = None
        node.frame = None
        for position, edge in enumerate(node.edges):
            if edge is None:
                continue
            target = edge[0]
            # the result must be held by nobody but its receiver: whether it may be added to in place depends on it
            _deliver(t, target, edge[1], results, position)
            target.waiting -= 1
            if target.waiting:
                continue
            if target.order == LEAF:
                # its place in the queue is always the first
                gathered, target.inputs = target.inputs, None
                target.backward(t, target, gathered[0] if gathered else None)
                del gathered
            else:
                arrivals += 1
                heappush(ready, (-target.order, arrivals, target))
        node.edges = []


def _release_unpacked(node: Node) -> None:
    """What was unpacked for this step goes with it, the last unpacked first; the block's own hold on it goes too."""
    held = node.saved
    assert isinstance(held, list)
    for position in range(len(held)):
        held[position] = None
    node.saved = ()


def _deliver(t: Tape, target: Node, slot: int, results: list[Tensor | None], position: int) -> None:
    """Give a gradient to the node that waits for it; a second one for the same place is added to the first."""
    inputs = target.inputs
    if inputs is None:
        inputs = target.inputs = [None]
    while len(inputs) <= slot:
        inputs.append(None)
    present = inputs[slot]
    if present is None:
        inputs[slot] = results[position]
        results[position] = None
        return
    # in place where nobody else holds the first (three: the list, `present`, the call's own argument)
    if results[position] is not None and (present.view or getrefcount(present) > 3):
        inputs[slot] = t.like(present)
        if t.work is not None:
            t.work.reads(inputs[slot], present, present)
        del present
    elif t.work is not None:
        t.work.over(present)
    results[position] = None


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
