"""Micro-steps that repeat are counted, not run: the events, and what the allocator makes of them, stay the same."""

from dataclasses import replace

import pytest

from truth import BUNDLED, H200, cases
from vramwise.allocator.quick.player import QuickPlayer
from vramwise.allocator.repeats import unroll
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.ghost.loops import sft as trainer
from vramwise.timeline import Action, MemoryReport, Repeat, Timeline

CASES = {case.name: case for case in cases(BUNDLED)}
LORA = CASES["lora_llama8b_s1024_b1_nogc"].run.changed(gradient_accumulation_steps=5)
MODEL = replace(CASES["lora_llama8b_s1024_b1_nogc"].model, num_hidden_layers=2)
TORCH = (2, 11)
RUNS = {
    "lora": (LORA, None),
    "checkpointed": (LORA.changed(recompute=True, gradient_checkpointing=True, gradient_accumulation_steps=8), None),
    "full": (LORA.changed(adapter=None, optimizer="adamw_torch"), None),
    "qlora": (LORA.changed(adapter="qlora", quantization="4bit", optimizer="paged_adamw_8bit"), None),
    "eval": (LORA.changed(evaluates=True, eval_batch_size=2, eval_steps=2), None),
    "widths": (LORA.changed(constant_shapes=False), [512, 256, 256, 256, 768, 512, 512, 512, 640, 640]),
    "offloaded": (LORA.changed(activation_offloading="stream"), None),
}


def ghost(name: str, *, plainly: bool = False) -> Timeline:
    run, widths = RUNS[name]
    return trainer.ghost_run(run, MODEL, gpu=H200, widths=widths, steps=7, plainly=plainly)[0]


def whole(name: str) -> Timeline:
    timeline = ghost(name, plainly=True)
    assert not timeline.repeats
    return timeline


def requests(timeline: Timeline) -> list[tuple[int, ...]]:
    """The events with tensors numbered in order of appearance, phases by name."""
    numbers: dict[int, int] = {}
    found = []
    for event in timeline.events:
        if event.action == Action.PHASE:
            found.append((event.action, *timeline.phases[event.tag]))
        else:
            found.append((event.action, numbers.setdefault(event.tensor, len(numbers)), event.size_bytes))
    return found


def figures(report: MemoryReport) -> tuple[object, ...]:
    failed = report.out_of_memory and (report.out_of_memory.requested_bytes, report.out_of_memory.phase)
    return report.peak_allocated_bytes, report.peak_reserved_bytes, report.phases, failed, report.retries


@pytest.mark.parametrize("name", RUNS)
def test_unrolled_it_is_the_run_in_full(name):
    short = ghost(name)
    assert short.repeats
    assert requests(unroll(short)) == requests(whole(name))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "settings", ["", "expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:4"]
)
@pytest.mark.parametrize("name", RUNS)
def test_the_allocator_comes_to_the_same_figures(name, settings):
    parsed = parse_settings(settings, TORCH)
    short = simulate(ghost(name), parsed, torch=TORCH)
    assert figures(short) == figures(simulate(whole(name), parsed, torch=TORCH))


@pytest.mark.parametrize("settings", ["", "expandable_segments:True", "garbage_collection_threshold:0.6"])
def test_also_where_memory_runs_short(settings):
    parsed = parse_settings(settings, TORCH)
    short, full = ghost("widths"), whole("widths")
    needed = simulate(full, parsed, torch=TORCH).peak_reserved_bytes
    for share in (0.99, 0.95, 0.9, 0.8, 0.7):
        limit = int(share * needed)
        mine = simulate(short, parsed, torch=TORCH, limit_bytes=limit)
        assert figures(mine) == figures(simulate(full, parsed, torch=TORCH, limit_bytes=limit))


def test_most_turns_of_a_repeat_are_not_played(monkeypatch):
    run = LORA.changed(gradient_accumulation_steps=64)
    timeline = trainer.ghost_run(run, MODEL, gpu=H200, steps=2)[0]
    assert [repeat.times for repeat in timeline.repeats] == [62, 62]
    played = 0
    plain = QuickPlayer.play

    def counted(self, start, stop, first=True):
        nonlocal played
        played += stop - start
        return plain(self, start, stop, first)

    monkeypatch.setattr(QuickPlayer, "play", counted)
    simulate(timeline, parse_settings("", TORCH), torch=TORCH)
    assert played < 3 * len(timeline.events)


def test_a_repeat_that_grows_is_played_to_its_end():
    """What a turn leaves behind may make the next one ask for more: here each turn keeps its block."""
    from vramwise.timeline import Event, Phase, Tag

    events = [Event(Action.ALLOC, 1, 512, 0, 0), Event(Action.ALLOC, 2, 512, 0, 0), Event(Action.FREE, 1, 512, 0, 0)]
    timeline = Timeline(
        events=events, tags=[Tag("data", "")], phases=[Phase("a", 1)], repeats=[Repeat(1, 3, 9, ((1, 2),))]
    )
    assert len(unroll(timeline).events) == 3 + 9 * 2
    parsed = parse_settings("", TORCH)
    assert figures(simulate(timeline, parsed, torch=TORCH)) == figures(simulate(unroll(timeline), parsed, torch=TORCH))


def test_steps_that_repeat_are_counted_and_reach_the_same_marks():
    timeline = trainer.ghost_run(LORA, MODEL, gpu=H200, steps=10_000)[0]
    short = trainer.ghost_run(LORA, MODEL, gpu=H200, steps=5)[0]
    assert len(timeline.events) == len(short.events)
    parsed = parse_settings("", TORCH)
    report, few = simulate(timeline, parsed, torch=TORCH), simulate(short, parsed, torch=TORCH)
    assert report.peak_reserved_bytes == few.peak_reserved_bytes
    assert {peak.step for peak in report.phases} == set(range(10_001))
    assert [replace(peak, step=5) for peak in report.phases if peak.step == 9_999] == [
        peak for peak in few.phases if peak.step == 5
    ]


@pytest.mark.parametrize("accumulation", [2_000, 10**6, 2**31 - 1])
def test_accumulation_takes_memory_but_no_time(accumulation):
    run = LORA.changed(gradient_accumulation_steps=accumulation)
    timeline, said = trainer.ghost_run(run, MODEL, gpu=H200)
    assert len(timeline.events) < 60_000
    assert any(f"gradient_accumulation_steps {accumulation:,}" in note for note in said)
    report = simulate(timeline, parse_settings("", TORCH), torch=TORCH)
    assert report.peak_allocated_bytes > accumulation * 3 * 8 * run.shapes.sequence_len * run.batch.micro_batch_size


def test_of_many_different_micro_steps_the_first_the_widest_and_the_last_run():
    widths = [64 + number % 700 for number in range(900)]
    widths[800] = 1024
    run = LORA.changed(gradient_accumulation_steps=900, constant_shapes=False)
    _, said = trainer.ghost_run(run, MODEL, gpu=H200, widths=widths, steps=2)
    assert any("64 of a step's 900 micro-steps are simulated" in note for note in said)


def test_states_that_never_come_back_are_given_up_in_a_sentence(monkeypatch):
    monkeypatch.setattr("vramwise.allocator.player._PATIENCE", 20_000)
    run = LORA.changed(gradient_accumulation_steps=10**6)
    timeline = trainer.ghost_run(run, MODEL, gpu=H200)[0]
    settings = parse_settings("garbage_collection_threshold:0.6", TORCH)
    report = simulate(timeline, settings, torch=TORCH, limit_bytes=10**15)
    assert any("are not simulated" in note for note in report.assumptions)


def test_turns_are_written_out_up_to_a_number_of_events():
    timeline = trainer.ghost_run(LORA, MODEL, gpu=H200, steps=50)[0]
    assert len(unroll(timeline, 30_000).events) <= 30_000 < len(unroll(timeline).events)
