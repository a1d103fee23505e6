"""A pass of a shape that ran before is written, not run: the events are those of running it."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_layers import CHECKPOINTED, LORA, MODEL, every_layer, written

from nightly import examples
from truth import H200
from vramwise.ghost.layers import sampling
from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.sft import ghost_run
from vramwise.ghost.tape import Storage
from vramwise.timeline import Action

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
