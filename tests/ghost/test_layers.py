"""A layer stands for those like it: the events are those of a run of all layers, and where it cannot, all run."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_any_run import runs, small_model

from nightly import examples
from truth import BUNDLED, H200, cases
from vramwise.copied_events import WrittenOut
from vramwise.errors import VramwiseError
from vramwise.families import all_model_types
from vramwise.ghost.layers import sampling
from vramwise.ghost.layers.forms import Units, units_of
from vramwise.ghost.layers.passes import Unlike
from vramwise.ghost.loops.sft import ghost_run
from vramwise.ghost.shortcuts import Plainly, Shortcuts
from vramwise.timeline import Action
from vramwise.types import TrainedBlocks

CASES = {case.name: case for case in cases(BUNDLED)}
LORA = CASES["lora_llama8b_s1024_b1_nogc"].run.changed(evaluates=True, eval_batch_size=1, eval_on_start=True)
MODEL = replace(CASES["lora_llama8b_s1024_b1_nogc"].model, num_hidden_layers=9)
CHECKPOINTED = {"recompute": True, "gradient_checkpointing": True}
RUNS = {
    "lora": LORA,
    "checkpointed": LORA.changed(**CHECKPOINTED),
    "reentrant, casts until the end": LORA.changed(**CHECKPOINTED, checkpointing_reentrant=True, autocast=True),
    "8 bit, held by the graph": LORA.changed(quantization="8bit", weights_dtype="fp16"),
    "full": LORA.changed(adapter=None, optimizer="adamw_torch", gradient_accumulation_steps=3),
    "the last blocks trained": LORA.changed(adapter=None, trained_blocks=TrainedBlocks(count=8), **CHECKPOINTED),
    "a reference beside it": LORA.changed(objective="dpo", reference="adapter_off", **CHECKPOINTED),
}


def written(timeline):
    """All there is to it, marks in words."""
    events = [
        (*event[:4], timeline.tags[event.tag] if event.action == Action.ALLOC else event.tag)
        for event in timeline.events
    ]
    return events, list(timeline.phases), list(timeline.repeats), list(timeline.cuts)


def every_layer(run, model, **more):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shortcuts, "layers", Plainly.layers)
        return ghost_run(run, model, **more)[0]


@pytest.mark.parametrize("name", RUNS)
def test_the_events_are_those_of_all_layers(name):
    quick = ghost_run(RUNS[name], MODEL, gpu=H200, steps=3)[0]
    assert isinstance(quick.events, WrittenOut)
    assert written(quick) == written(every_layer(RUNS[name], MODEL, gpu=H200, steps=3))


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(run=runs(), kind=st.sampled_from(sorted(all_model_types())), layers=st.sampled_from([8, 13]))
def test_of_any_run_too(run, kind, layers):
    model = small_model(kind, num_hidden_layers=layers, n_layer=layers, n_layers=layers)
    try:
        slow = every_layer(run, model, steps=2)
    except VramwiseError:
        return
    assert written(ghost_run(run, model, steps=2)[0]) == written(slow)


@pytest.mark.parametrize("name", ["lora", "checkpointed", "full"])
def test_where_it_cannot_nothing_is_left_of_the_attempt(name, monkeypatch):
    seen = []

    def unlike(*_):
        seen.append(1)
        raise Unlike("in something")

    monkeypatch.setattr(sampling, "Expansion", unlike)
    all_run = ghost_run(RUNS[name], MODEL, gpu=H200, steps=3)[0]
    assert seen == [1]  # and then no more
    assert written(all_run) == written(every_layer(RUNS[name], MODEL, gpu=H200, steps=3))


def test_rows_of_units():
    assert units_of([0] * 7) is None
    assert units_of([0] * 9) == Units(0, 1, 9)
    assert units_of([1, 1, *[0] * 9, 2]) == Units(2, 1, 9)
    assert units_of([0, 0, 0, 1] * 6) == Units(0, 4, 6)
    assert units_of(list(range(30))) is None
    assert Units(0, 4, 6).running(25) == [*range(8), *range(16, 25)]


def test_copies_read_like_the_events_they_stand_for():
    """`lazy` is asked before anybody has made it write all of them down."""
    lazy, events = [ghost_run(LORA, MODEL, gpu=H200, steps=2)[0].events for _ in range(2)]
    listed = list(events)
    assert len(lazy) == len(listed)
    assert lazy[100:2000] == events[100:2000] == listed[100:2000]
    assert [lazy[place] for place in range(-3, len(listed))] == [*listed[-3:], *listed]
    with pytest.raises(IndexError):
        lazy[len(listed)]
    assert lazy[-700::3] == listed[-700::3]
    assert lazy == listed
