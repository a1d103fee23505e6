"""No byte of a run depends on the interpreter: not on reference counts, nor on the order in which it drops variables."""

import random
import re
from pathlib import Path

import pytest

import vramwise
from accuracy import predict
from truth import BUNDLED, cases
from vramwise.ghost.dtypes import FP32
from vramwise.ghost.engine import backward
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.loops import sft
from vramwise.ghost.tape import Node, Tape
from vramwise.timeline import Action

CASES = [case for case in cases(BUNDLED) if case.model.num_hidden_layers <= 24][::4]


class AnyOrder(list):
    """Events in which a free goes to any place among those that follow one another."""

    def __init__(self, tape, chance):
        super().__init__(tape.events)
        self.tape, self.chance = tape, chance

    def append(self, event):
        if event[0] != Action.FREE:
            super().append(event)
            return
        first, bound = len(self), max([0, *self.tape.cuts, *self.tape.bounds])
        while first > bound and self[first - 1][0] == Action.FREE:
            first -= 1
        self.insert(self.chance.randint(first, len(self)), event)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_order_in_which_variables_are_dropped_changes_nothing(monkeypatch, case):
    usual = predict(case)

    def tape(hardware):
        made = Tape(hardware)
        made.events = AnyOrder(made, random.Random(3))
        return made

    monkeypatch.setattr(sft, "Tape", tape)
    shuffled = predict(case)
    assert shuffled == usual
    assert list(shuffled.events) == list(usual.events)


def test_a_gradient_with_two_receivers_is_not_added_to_in_place():
    """torch adds to a gradient in place if nobody else holds it."""
    requests = []
    for shared in (False, True):
        t = Tape(Hardware())
        t.grad_enabled = False
        ends = [Node(order, lambda tape, node, grad: ()) for order in (1, 2)]
        both = Node(4, lambda tape, node, grad, shared=shared: (grad, grad if shared else tape.like(grad)))
        later = Node(3, lambda tape, node, grad: (tape.like(grad),))
        root = Node(5, lambda tape, node, grad: (tape.like(grad), tape.like(grad)))
        root.edges = [(both, 0), (later, 0)]
        both.edges = [(ends[0], 0), (ends[1], 0)]
        later.edges = [(ends[0], 0)]
        backward(t, root, t.new((1024,), FP32))
        requests.append(sum(event.action == Action.ALLOC for event in t.events))
    # shared: one gradient less is made, and the sum of two in its place
    assert requests == [5, 5]


def test_a_gradient_with_one_receiver_is_added_to_in_place():
    t = Tape(Hardware())
    end = Node(1, lambda tape, node, grad: ())
    first, second = [Node(order, lambda tape, node, grad: (tape.like(grad),)) for order in (3, 2)]
    root = Node(5, lambda tape, node, grad: (grad, grad))
    root.edges = [(first, 0), (second, 0)]
    first.edges = second.edges = [(end, 0)]
    backward(t, root, t.new((1024,), FP32))
    assert sum(event.action == Action.ALLOC for event in t.events) == 3


def test_nothing_asks_the_interpreter_what_is_alive():
    """`Storage.__del__` alone: a storage is freed when its last variable goes, the same on every CPython."""
    ghost = Path(vramwise.__file__).parent / "ghost"
    found = {
        (path.relative_to(ghost).as_posix(), word)
        for path in ghost.rglob("*.py")
        for word in re.findall(r"getrefcount|get_referrers|__del__|finalize|import gc|sys\.", path.read_text())
    }
    assert found == {("tensors.py", "__del__")}
