"""Any run of any family goes through: a timeline and a report, or an error in the product's own words."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from made_up_runs import RUN, runs, small_model
from nightly import examples
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.errors import VramwiseError
from vramwise.facts.gpus import find_gpu
from vramwise.ghost.loops.sft import ghost_run
from vramwise.models.families import all_model_types
from vramwise.timeline import Action

CARDS = [None, "h200", "a100", "rtx-4090", "rtx-3090", "t4", "v100", "b200", "mi300x", "24GB"]


def goes_through(run, model, **options):
    """A timeline in which nothing is freed twice or never made, and a report of it; or a VramwiseError."""
    try:
        timeline, _said = ghost_run(run, model, steps=2, **options)
    except VramwiseError:
        return
    live = set()
    for event in timeline.events:
        if event.action == Action.ALLOC:
            assert event.tensor not in live
            assert event.size_bytes > 0
            live.add(event.tensor)
        elif event.action == Action.FREE:
            live.remove(event.tensor)
    report = simulate(timeline, parse_settings(run.allocator.settings, run.target.torch), torch=run.target.torch)
    assert 0 < report.peak_allocated_bytes <= report.peak_reserved_bytes
    assert sum(report.breakdown_bytes.values()) <= report.peak_allocated_bytes


@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    run=runs(),
    model_type=st.sampled_from(sorted(all_model_types())),
    tied=st.booleans(),
    kv=st.sampled_from([1, 2, 4]),
    card=st.sampled_from(CARDS),
    own=st.booleans(),
    widths=st.none() | st.lists(st.integers(1, 90), min_size=1, max_size=5),
)
def test_any_run_goes_through(run, model_type, tied, kv, card, own, widths):
    model = small_model(model_type, tie_word_embeddings=tied, num_key_value_heads=kv, num_kv_heads=kv)
    gpu = None if card is None else find_gpu(card)
    run = run.changed(fsdp_one_root=own, fsdp_adapters_apart=own, liger_before_build=own)
    goes_through(run, model, widths=widths, eval_widths=widths, gpu=gpu)


@pytest.mark.parametrize("model_type", sorted(all_model_types()))
@pytest.mark.parametrize("adapter", [None, "lora"])
def test_every_model_type_trains(model_type, adapter):
    timeline, _ = ghost_run(RUN.changed(adapter=adapter, sequence_len=64), small_model(model_type), steps=2)
    assert {phase.name for phase in timeline.phases} >= {"load", "forward", "loss", "backward", "clip", "optimizer"}
