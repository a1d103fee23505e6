"""Activation offloading: what is sent, what stays, when what comes back goes."""

from dataclasses import replace

import pytest

from truth import BUNDLED, H200, cases
from vramwise.allocator.repeats import unroll
from vramwise.ghost import checkpointing
from vramwise.ghost.dtypes import BF16
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.loops.sft import ghost_run
from vramwise.ghost.offload import Offload
from vramwise.ghost.ops import matmul
from vramwise.ghost.tape import Node, Tape
from vramwise.timeline import Action

LORA = next(case for case in cases(BUNDLED) if case.name == "lora_llama8b_s1024_b1_nogc")
KIB = 1024


def nothing(*_):
    return ()


def tensors(t, count, size=KIB):
    return [t.new((size,), BF16) for _ in range(count)]


def live(t) -> int:
    return sum(event.size_bytes * (1 if event.action == Action.ALLOC else -1) for event in t.events)


def node_of(offload, *saved) -> Node:
    node = Node(0, nothing)
    node.frame = offload
    node.saved = offload.pack(tuple(saved[::-1]), nothing)
    return node


def test_a_sent_tensor_stays_until_five_more_are_saved():
    t = Tape(Hardware())
    offload = Offload(t)
    for number in range(1, 9):
        node_of(offload, *tensors(t, 1))
        assert live(t) == min(number, 5) * 2 * KIB


def test_saved_again_on_its_way_it_stays_for_good():
    t = Tape(Hardware())
    offload = Offload(t)
    [x] = tensors(t, 1)
    nodes = [node_of(offload, x), node_of(offload, x)]
    del x
    for _ in range(9):
        node_of(offload, *tensors(t, 1))
    assert live(t) == 6 * 2 * KIB
    assert len(nodes[0].saved) == 1


def test_a_matrix_in_the_place_of_one_on_its_way_is_taken_for_it():
    """TRL knows tensors by their address: autocast's copy of the next weight lies where the last one's was, and stays."""
    t = Tape(Hardware())
    offload = Offload(t)
    packed = []
    for _ in range(3):
        copy_of_weight = t.new((64, 64), BF16)
        packed.append(offload.pack((copy_of_weight,), matmul._linear_backward)[0])
        del copy_of_weight
    assert [type(one).__name__ for one in packed] == ["_OnHost", "_Kept", "_OnHost"]
    for _ in range(9):
        node_of(offload, *tensors(t, 1))
    assert live(t) == 64 * 64 * 2 + 5 * 2 * KIB


def test_without_a_second_stream_everything_goes_at_once():
    t = Tape(Hardware())
    offload = Offload(t, streams=False)
    node = node_of(offload, *tensors(t, 3))
    assert live(t) == 0
    back = offload.unpack(t, node)
    assert live(t) == 3 * 2 * KIB
    assert {event.stream for event in t.events} == {0}
    del back
    assert live(t) == 0


def test_small_tensors_stay():
    t = Tape(Hardware())
    offload = Offload(t, streams=False)
    node = node_of(offload, *tensors(t, 1, size=511))
    assert live(t) == 1022
    assert len(node.saved) == 1


@pytest.mark.parametrize(("nested", "held"), [(0, 1), (1, 3)])
def test_what_came_back_goes_when_the_next_step_is_done(nested, held):
    """Within a nested backward nobody lets go of it."""
    t = Tape(Hardware())
    offload = Offload(t)
    nodes = [node_of(offload, *tensors(t, 1)) for _ in range(3)]
    node_of(offload, *tensors(t, 6))
    t.nested = nested
    for node in nodes:
        back = offload.unpack(t, node)
        del back
        offload.finished()
    assert live(t) == held * 2 * KIB
    assert [event.stream for event in t.events if event.action == Action.ALLOC][-1] == 1
    offload.close()
    assert live(t) == 0


@pytest.mark.parametrize(("linger", "held"), [(True, 1), (False, 0)])
def test_the_input_of_a_block_that_runs_again_goes_with_the_second_run(linger, held):
    """Without reentry its second run alone keeps it; within reentry it lingers like everything else."""
    t = Tape(Hardware())
    offload = Offload(t, inputs_linger=linger)
    node = Node(0, nothing)
    node.saved = offload.pack(tuple(tensors(t, 1)), checkpointing._recompute)
    node_of(offload, *tensors(t, 6))
    back = offload.unpack(t, node)
    offload.finished()  # nothing is on its way any longer
    assert live(t) == 2 * KIB
    del back
    assert live(t) == held * 2 * KIB


def test_what_is_still_on_its_way_is_no_sole_owner_of_its_memory():
    """A gradient that a fused loss saved: another is added to it in a new block."""
    t = Tape(Hardware())
    offload = Offload(t)
    first = node_of(offload, *tensors(t, 1))
    (gone,) = offload.unpack(t, first)
    assert gone.view


def peak(layers=6, **changes) -> int:
    run = LORA.run.changed(sequence_len=512, micro_batch_size=4, **changes)
    timeline = unroll(ghost_run(run, replace(LORA.model, num_hidden_layers=layers), gpu=H200, steps=2)[0])
    level = highest = 0
    seen = False
    for event in timeline.events:
        seen = seen or (event.action == Action.PHASE and timeline.phases[event.tag].step > 0)
        level += {Action.ALLOC: event.size_bytes, Action.FREE: -event.size_bytes}.get(event.action, 0)
        highest = max(highest, level) if seen else highest
    return highest


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("mode", ["stream", "legacy", "hidden_states"])
def test_inputs_of_checkpointed_blocks_leave_the_card(mode, reentrant):
    """A block more costs its weights and adapters, but no input."""
    how = {"recompute": True, "checkpointing_reentrant": reentrant}

    def block(**more):
        return peak(8, **how, **more) - peak(7, **how, **more)

    assert block(activation_offloading=mode) < block(activation_offloading="off")


def test_each_micro_step_begins_with_an_emptied_cache():
    run = LORA.run.changed(sequence_len=64, activation_offloading="stream", gradient_accumulation_steps=2)
    timeline = unroll(ghost_run(run, replace(LORA.model, num_hidden_layers=2), gpu=H200, steps=3)[0])
    start = next(i for i, e in enumerate(timeline.events) if e.action == Action.PHASE and timeline.phases[e.tag].step)
    assert sum(event.action == Action.EMPTY_CACHE for event in timeline.events[start:]) == 6
