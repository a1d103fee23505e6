import pytest

from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.timeline import Action, Event, OutOfMemory, Phase, PhasePeak, Repeat, Tag, Timeline
from vramwise.units import MIB

WEIGHTS, ACTIVATIONS = 0, 1
TAGS = (Tag("weights", "embed"), Tag("activations", "layers.0.mlp"))
PHASES = (Phase("load", 0), Phase("forward", 1), Phase("backward", 1))


def alloc(tensor, size_mib, tag):
    return Event(Action.ALLOC, tensor, int(size_mib * MIB), 0, tag)


def free(tensor):
    return Event(Action.FREE, tensor, 0, 0, 0)


def phase(number):
    return Event(Action.PHASE, 0, 0, 0, number)


RUN = (
    phase(0),
    alloc(1, 100, WEIGHTS),
    phase(1),
    alloc(2, 50, ACTIVATIONS),
    alloc(3, 30, ACTIVATIONS),
    phase(2),
    free(3),
    alloc(4, 20, ACTIVATIONS),
    free(4),
    free(2),
)


def run(events=RUN, conf="", torch=(2, 11), **options):
    timeline = Timeline(events=events, tags=TAGS, phases=PHASES)
    return simulate(timeline, parse_settings(conf, torch), torch=torch, **options)


def test_peaks_phases_and_breakdown():
    report = run(outside_bytes=7)
    assert report.peak_allocated_bytes == report.peak_reserved_bytes == 180 * MIB
    assert report.device_bytes == 180 * MIB + 7
    assert (report.peak_phase, report.peak_step) == ("forward", 1)
    assert report.breakdown_bytes == {"weights": 100 * MIB, "activations": 80 * MIB}
    assert list(report.breakdown_bytes) == ["weights", "activations"]
    assert report.phases == [
        PhasePeak(step=0, phase="load", peak_allocated_bytes=100 * MIB, peak_reserved_bytes=100 * MIB),
        PhasePeak(step=1, phase="forward", peak_allocated_bytes=180 * MIB, peak_reserved_bytes=180 * MIB),
        PhasePeak(step=1, phase="backward", peak_allocated_bytes=180 * MIB, peak_reserved_bytes=180 * MIB),
    ]
    assert report.out_of_memory is None
    assert report.settings == ""


def test_a_reset_lets_a_phases_peaks_begin_anew_and_the_card_remembers():
    reset = Event(Action.RESET_PEAKS, 0, 0, 0, 0)
    events = (phase(0), alloc(1, 100, WEIGHTS), alloc(2, 300, WEIGHTS), free(2))
    empty = Event(Action.EMPTY_CACHE, 0, 0, 0, 0)
    report = run((*events, empty, reset, alloc(3, 50, WEIGHTS)))
    (load,) = report.phases
    assert (load.peak_allocated_bytes, load.peak_reserved_bytes) == (150 * MIB, 150 * MIB)
    assert report.forgotten_reserved_bytes == 400 * MIB
    assert report.highest_reserved_bytes == report.device_bytes == 400 * MIB


def test_the_breakdown_adds_up_to_allocated_rounding_included():
    report = run((alloc(1, 0.1, WEIGHTS), alloc(2, 11, ACTIVATIONS)))
    # 11 MiB come as a segment of 12 that is not worth splitting
    assert report.breakdown_bytes == {"activations": 12 * MIB, "weights": 104_960}
    assert sum(report.breakdown_bytes.values()) == report.peak_allocated_bytes


def test_of_several_moments_at_the_peak_the_fullest_is_shown():
    events = (alloc(1, 30, WEIGHTS), free(1), alloc(2, 20, WEIGHTS), alloc(3, 10, ACTIVATIONS), free(3))
    report = run(events)
    assert report.peak_reserved_bytes == 30 * MIB
    assert report.breakdown_bytes == {"weights": 30 * MIB}
    events = (alloc(1, 24, WEIGHTS), free(1), alloc(2, 20, WEIGHTS), alloc(3, 4, ACTIVATIONS), alloc(4, 11, WEIGHTS))
    assert run(events[:4]).breakdown_bytes == {"weights": 24 * MIB}
    assert run(events).breakdown_bytes == {"weights": 32 * MIB, "activations": 4 * MIB}


def test_a_phase_that_comes_twice_in_a_step_counts_once():
    events = (phase(1), alloc(1, 20, WEIGHTS), free(1), phase(2), phase(1), alloc(2, 40, WEIGHTS))
    report = run(events)
    assert [(peak.phase, peak.peak_allocated_bytes // MIB) for peak in report.phases] == [
        ("forward", 40),
        ("backward", 0),
    ]


def test_out_of_memory_names_step_phase_and_label():
    report = run(limit_bytes=160 * MIB)
    assert report.out_of_memory == OutOfMemory(
        step=1,
        phase="forward",
        label="layers.0.mlp",
        requested_bytes=30 * MIB,
        allocated_bytes=150 * MIB,
        reserved_bytes=150 * MIB,
    )
    assert report.retries == 1
    assert report.peak_reserved_bytes == 150 * MIB


def test_retries_within_a_limit():
    events = (alloc(1, 60, WEIGHTS), free(1), alloc(2, 80, ACTIVATIONS))
    assert run(events).peak_reserved_bytes == 140 * MIB
    limited = run(events, limit_bytes=100 * MIB)
    assert (limited.retries, limited.peak_reserved_bytes, limited.out_of_memory) == (1, 80 * MIB, None)


def test_empty_cache_and_empty_tensors():
    events = (
        alloc(1, 60, WEIGHTS),
        free(1),
        Event(Action.EMPTY_CACHE, 0, 0, 0, 0),
        Event(Action.ALLOC, 2, 0, 0, WEIGHTS),
        free(2),
        alloc(3, 80, WEIGHTS),
    )
    assert run(events).peak_reserved_bytes == 80 * MIB


def test_memory_before_the_first_phase_is_counted_too():
    report = run((alloc(1, 20, WEIGHTS),))
    assert [peak.phase for peak in report.phases] == ["start"]
    assert report.peak_phase == "start"


def test_a_timeline_without_allocations():
    report = run((phase(0),))
    assert (report.peak_allocated_bytes, report.peak_reserved_bytes, report.breakdown_bytes) == (0, 0, {})


@pytest.mark.parametrize("torch", [(2, version) for version in range(2, 14)])
@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_every_version_plays(conf, torch):
    report = run(conf=conf, torch=torch)
    assert report.peak_allocated_bytes == 180 * MIB
    assert report.peak_reserved_bytes == 180 * MIB


def test_a_tensor_that_a_repeat_carries_keeps_its_stream():
    """Each turn frees the last turn's tensor, which lies in another stream's pool."""
    events = [
        Event(Action.ALLOC, 1, 40 * MIB, 3, 0),
        Event(Action.FREE, 1, 40 * MIB, 0, 0),
        Event(Action.ALLOC, 2, 40 * MIB, 3, 0),
        Event(Action.ALLOC, 3, 60 * MIB, 0, 0),
        Event(Action.FREE, 3, 60 * MIB, 0, 0),
    ]
    repeats = [Repeat(1, 5, 4, ((1, 2),))]
    timeline = Timeline(events=events, tags=[Tag("data", "")], phases=[], repeats=repeats)
    quick, plain = (simulate(timeline, parse_settings("", (2, 11)), plainly=plainly) for plainly in (False, True))
    assert quick == plain
    assert quick.peak_reserved_bytes == 100 * MIB
