"""A layer stands for those like it: the events are those of a run of all layers, and where it cannot, all run."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from made_up_runs import runs, small_model
from nightly import examples
from truth import BUNDLED, H200, cases
from vramwise.copied_events import WrittenOut
from vramwise.errors import VramwiseError
from vramwise.families import all_model_types
from vramwise.ghost.layers import sampling
from vramwise.ghost.layers.forms import Units, units_of
from vramwise.ghost.layers.passes import Unlike
from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.sft import ghost_run
from vramwise.ghost.shortcuts import Plainly, Shortcuts
from vramwise.ghost.tape import Storage
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


SMALL = replace(MODEL, vocab_size=5_000, hidden_size=512, intermediate_size=1024)
OBJECTIVES = {
    "tokens": {},
    "dpo": {"objective": "dpo", "reference": "adapter_off", "log_probs": "copied"},
    "kto": {"objective": "kto", "reference": "adapter_off"},
    "orpo": {"objective": "orpo", "log_probs": "copied", "chosen_cross_entropy": True},
    "reward": {"objective": "reward"},
    "process rewards": {"objective": "process_reward"},
    "value": {"objective": "value"},
    "grpo": {"objective": "grpo", "reference": "adapter_copy", "generation_rows": 2, "completion_len": 32},
}
WIDTHS = st.none() | st.lists(st.sampled_from([64, 128, 200]), min_size=1, max_size=6)


def counted(monkeypatch):
    """A list that has an item for each pass that is written again."""
    again, write = [], sampling.write_again
    monkeypatch.setattr(sampling, "write_again", lambda *of: again.append(1) or write(*of))
    return again


@pytest.mark.parametrize("name", OBJECTIVES)
def test_whatever_is_trained(name, monkeypatch):
    run = LORA.changed(**OBJECTIVES[name], gradient_accumulation_steps=3, eval_steps=2)
    again = counted(monkeypatch)
    quick = ghost_run(run, SMALL, gpu=H200, steps=5)[0]
    assert bool(again) == (name != "grpo")  # whose layers all run
    assert written(quick) == written(every_layer(run, SMALL, gpu=H200, steps=5))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    name=st.sampled_from(sorted(OBJECTIVES)),
    widths=WIDTHS,
    evals=WIDTHS,
    accumulated=st.integers(1, 4),
    on_start=st.booleans(),
    changes=st.fixed_dictionaries(
        {
            "adapter": st.sampled_from([None, "lora"]),
            "autocast": st.booleans(),
            "empties_cache_each_step": st.booleans(),
            "recompute": st.booleans(),
            "loss_kernel": st.sampled_from(["stock", "liger_fused_linear", "cut", "chunked"]),
            "eval_empties_every": st.sampled_from([None, 1]),
            "max_grad_norm": st.sampled_from([0.0, 1.0]),
        }
    ),
)
def test_of_any_shapes(name, widths, evals, accumulated, on_start, changes):
    changes |= {"reference": "model"} if changes["adapter"] is None and name in ("dpo", "kto", "grpo") else {}
    run = LORA.changed(gradient_accumulation_steps=accumulated, eval_steps=2, eval_on_start=on_start)
    run = run.changed(**OBJECTIVES[name] | changes, gradient_checkpointing=changes["recompute"])
    shapes = {"widths": _rows(widths), "eval_widths": _rows(evals), "steps": 4, "gpu": H200}
    assert written(ghost_run(run, SMALL, **shapes)[0]) == written(every_layer(run, SMALL, **shapes))


def _rows(widths):
    return None if widths is None else [BatchShape(2, width, width == 128) for width in widths]


def test_a_pass_that_leaves_a_table_runs_until_it_finds_it(monkeypatch):
    """What else is made with the table is made once, too: only a pass that found it says what others do."""
    run = LORA.changed(**CHECKPOINTED, eval_on_start=False, eval_steps=None, evaluates=False)
    forward = sampling.Layers._sampled

    def with_a_table(self, work, units):
        if "table" not in self._t.once:
            self._t.scratch(12_345_678)
            self._t.once["table"] = Storage(self._t, 8192)
        return forward(self, work, units)

    monkeypatch.setattr(sampling.Layers, "_sampled", with_a_table)
    again = counted(monkeypatch)
    timeline = ghost_run(run, SMALL, gpu=H200, steps=4, widths=[256, 512])[0]
    assert len(again) == 1  # the third step finds it first; the second was the first of its width, and had found it
    assert sum(event.size_bytes == 12_345_678 for event in timeline.events if event.action == Action.ALLOC) == 1
