"""What is counted or played as a whole because it is alike: nothing differs from doing it each time."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from made_up_runs import runs, small_model
from nightly import examples
from vramwise.allocator.repeats import unroll
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.errors import VramwiseError
from vramwise.ghost.loops.sft import ghost_run
from vramwise.models.families import all_model_types
from vramwise.timeline import Action

COMMON = {
    "max_examples": examples(40),
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "derandomize": True,
}
KINDS = st.sampled_from(sorted(all_model_types()))
WIDTHS = st.none() | st.lists(st.sampled_from([64, 128, 200]), min_size=1, max_size=6)


def timeline_of(run, model, widths, *, plainly=False):
    try:
        return ghost_run(run, model, steps=4, widths=widths, plainly=plainly)[0]
    except VramwiseError:
        return None


def written_out(timeline):
    """Every event, with marks in words, and tensors numbered in order of appearance."""
    numbers: dict[int, int] = {}
    found = []
    whole = unroll(timeline)
    for action, tensor, size, stream, tag in whole.events:
        mark = whole.tags[tag] if action == Action.ALLOC else whole.phases[tag] if action == Action.PHASE else None
        number = numbers.setdefault(tensor, len(numbers)) if action <= Action.FREE else None
        found.append((action, number, size, stream, mark))
    return found


@settings(**COMMON)
@given(run=runs(), kind=KINDS, widths=WIDTHS, layers=st.sampled_from([2, 8]))
def test_shortcuts_leave_out_nothing(run, kind, widths, layers):
    model = small_model(kind, num_hidden_layers=layers, n_layer=layers, n_layers=layers)
    quick, slow = timeline_of(run, model, widths), timeline_of(run, model, widths, plainly=True)
    if slow is None:
        assert quick is None
        return
    assert not slow.repeats
    assert written_out(quick) == written_out(slow)


@settings(**COMMON)
@given(run=runs(), kind=KINDS, widths=WIDTHS, share=st.sampled_from([None, 0.99, 0.9]))
def test_layers_played_as_a_whole_leave_the_same_figures(run, kind, widths, share):
    timeline = timeline_of(run, small_model(kind, num_hidden_layers=6, n_layer=6, hidden_size=512), widths)
    if timeline is None:
        return
    torch = run.target.torch
    allocator = parse_settings(run.allocator.settings, torch)
    needs = simulate(timeline, allocator, torch=torch)
    assert needs == simulate(timeline, allocator, torch=torch, plainly=True)
    if share is not None:
        total = int(needs.peak_reserved_bytes * share)
        tight = simulate(timeline, allocator, torch=torch, total_bytes=total)
        assert tight == simulate(timeline, allocator, torch=torch, total_bytes=total, plainly=True)
