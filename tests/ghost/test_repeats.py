"""Micro-steps that repeat are counted, not run: the events, and what the allocator makes of them, stay the same."""

from dataclasses import replace

import pytest

from truth import BUNDLED, H200, cases
from vramwise.allocator.repeats import unroll
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.ghost.loops import sft as trainer
from vramwise.timeline import Action, MemoryReport, Repeat, Timeline

CASES = {case.name: case for case in cases(BUNDLED)}
LORA = replace(CASES["lora_llama8b_s1024_b1_nogc"].run, gradient_accumulation_steps=5)
MODEL = replace(CASES["lora_llama8b_s1024_b1_nogc"].model, num_hidden_layers=2)
TORCH = (2, 11)
RUNS = {
    "lora": (LORA, None),
    "checkpointed": (replace(LORA, recompute=True, gradient_checkpointing=True, gradient_accumulation_steps=8), None),
    "full": (replace(LORA, adapter=None, optimizer="adamw_torch"), None),
    "qlora": (replace(LORA, adapter="qlora", quantization="4bit", optimizer="paged_adamw_8bit"), None),
    "eval": (replace(LORA, evaluates=True, eval_batch_size=2, eval_steps=2), None),
    "widths": (replace(LORA, constant_shapes=False), [512, 256, 256, 256, 768, 512, 512, 512, 640, 640]),
    "offloaded": (replace(LORA, activation_offloading="stream"), None),
}


def ghost(name: str) -> Timeline:
    run, widths = RUNS[name]
    return trainer.ghost_run(run, MODEL, engine="transformers", gpu=H200, widths=widths, steps=4)[0]


def whole(name: str, monkeypatch) -> Timeline:
    monkeypatch.setattr(trainer, "repeats_the_last", lambda *_: False)
    return ghost(name)


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
def test_unrolled_it_is_the_run_in_full(name, monkeypatch):
    short = ghost(name)
    assert short.repeats
    assert requests(unroll(short)) == requests(whole(name, monkeypatch))


@pytest.mark.parametrize(
    "settings", ["", "expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:4"]
)
@pytest.mark.parametrize("name", RUNS)
def test_the_allocator_comes_to_the_same_figures(name, settings, monkeypatch):
    parsed = parse_settings(settings, TORCH)
    short = simulate(ghost(name), parsed, torch=TORCH)
    assert figures(short) == figures(simulate(whole(name, monkeypatch), parsed, torch=TORCH))


@pytest.mark.parametrize("settings", ["", "expandable_segments:True", "garbage_collection_threshold:0.6"])
def test_also_where_memory_runs_short(settings, monkeypatch):
    parsed = parse_settings(settings, TORCH)
    short, full = ghost("widths"), whole("widths", monkeypatch)
    needed = simulate(full, parsed, torch=TORCH).peak_reserved_bytes
    for share in (0.99, 0.95, 0.9, 0.8, 0.7):
        limit = int(share * needed)
        mine = simulate(short, parsed, torch=TORCH, limit_bytes=limit)
        assert figures(mine) == figures(simulate(full, parsed, torch=TORCH, limit_bytes=limit))


def test_most_turns_of_a_repeat_are_not_played(monkeypatch):
    run = replace(LORA, gradient_accumulation_steps=64)
    timeline = trainer.ghost_run(run, MODEL, engine="transformers", gpu=H200, steps=2)[0]
    assert [repeat.times for repeat in timeline.repeats] == [62, 62]
    played = 0
    from vramwise.allocator.run import _Player

    plain = _Player.play

    def counted(self, start, stop, first=True):
        nonlocal played
        played += stop - start
        return plain(self, start, stop, first)

    monkeypatch.setattr(_Player, "play", counted)
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
