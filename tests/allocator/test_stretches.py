"""Stretches that are alike, played by their footprints: the same figures as request by request, whatever comes."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.allocator.stretch_play import StretchPlayer
from vramwise.timeline import Action, Event, Phase, Tag, Timeline
from vramwise.units import MIB

KIB = 1024
SIZES = [4 * KIB, 100 * KIB, 512 * KIB, MIB, 3 * MIB, 3 * MIB + 512, 12 * MIB, 16 * MIB, 30 * MIB]
MODES = ["", "expandable_segments:True"]


class Writer:
    """A run of layers: each asks and frees by the same plan, and some of what it makes stays until the way back."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.events: list[Event] = []
        self.cuts: list[int] = []
        self.count = 0

    def alloc(self, size: int, stream: int = 0) -> tuple[int, int]:
        self.count += 1
        self.events.append(Event(Action.ALLOC, self.count, size, stream, 0))
        return self.count, size

    def free(self, tensor: tuple[int, int]) -> None:
        self.events.append(Event(Action.FREE, *tensor, 0, 0))

    def plan(self) -> list[tuple[int, int]]:
        """Requests, and how many requests later each goes (0: it stays)."""
        choice = self.chance.choice
        return [(choice(SIZES), choice([0, 1, 1, 2, 3, 5])) for _ in range(self.chance.randint(14, 24))]

    def layer(self, plan: list[tuple[int, int]], before: list[tuple[int, int]]) -> list[tuple[int, int]]:
        self.cuts.append(len(self.events))
        stays, due = [], []
        for at, (size, life) in enumerate(plan):
            made = self.alloc(size)
            if life:
                due.append((at + life, made))
            else:
                stays.append(made)
            for gone in [item for item in due if item[0] <= at]:
                due.remove(gone)
                self.free(gone[1])
            if before and at % 2:
                self.free(before.pop())
        for _, made in due:
            self.free(made)
        for made in before:
            self.free(made)
        return stays


def run_of_layers(seed: int, layers: int, passes: int) -> Timeline:
    writer = Writer(Random(seed))
    forward, back = writer.plan(), writer.plan()
    back = [(size, max(life, 1)) if writer.chance.random() < 0.8 else (size, life) for size, life in back]
    for _ in range(passes):
        writer.cuts += (len(writer.events), len(writer.events) + 1)
        writer.events.append(Event(Action.PHASE, 0, 0, 0, 0))
        kept = [writer.layer(forward, []) for _ in range(layers)]
        if writer.chance.random() < 0.3:  # what another stream made is freed in a layer's place
            writer.cuts.append(len(writer.events))
            kept = [[*of_layer, writer.alloc(3 * MIB, 1)] for of_layer in kept]
        gradients = [writer.layer(back, kept.pop()) for _ in range(layers)]
        writer.cuts.append(len(writer.events))
        for gradient in [tensor for of_layer in gradients for tensor in of_layer]:
            writer.free(gradient)
        if writer.chance.random() < 0.5:
            writer.alloc(writer.chance.choice(SIZES))
        if writer.chance.random() < 0.3:  # leaves holes in expandable segments
            writer.cuts += (len(writer.events), len(writer.events) + 1)
            writer.events.append(Event(Action.EMPTY_CACHE, 0, 0, 0, 0))
    return Timeline(events=writer.events, tags=[Tag("other", "")], phases=[Phase("step", 1)], cuts=writer.cuts)


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 9), st.sampled_from(MODES), st.sampled_from([(2, 11), (2, 13)]))
def test_same_figures_as_request_by_request(seed, layers, mode, torch):
    timeline = run_of_layers(seed, layers, 4)
    plain = replace(timeline, cuts=())
    allocator = parse_settings(mode, torch)
    whole = simulate(timeline, allocator, torch=torch)
    assert whole == simulate(plain, allocator, torch=torch)
    for share in (0.97, 0.8):
        total = int(whole.peak_reserved_bytes * share)
        tight = simulate(timeline, allocator, torch=torch, total_bytes=total)
        assert tight == simulate(plain, allocator, torch=torch, total_bytes=total)


@pytest.mark.parametrize("mode", MODES)
def test_most_of_it_goes_by_footprints(mode, monkeypatch):
    """What is compared above is not the slow way twice."""
    by_footprint = []
    play = StretchPlayer.play

    def watched(self, start, stop):
        played = play(self, start, stop)
        by_footprint.append(played is not None)
        return played

    monkeypatch.setattr(StretchPlayer, "play", watched)
    simulate(run_of_layers(1, 12, 6), parse_settings(mode, (2, 11)), torch=(2, 11))
    assert sum(by_footprint) > len(by_footprint) / 4


def test_settings_under_which_blocks_are_chosen_otherwise_are_played_one_by_one(monkeypatch):
    monkeypatch.setattr(StretchPlayer, "play", lambda *_: pytest.fail("played as a whole"))
    timeline = run_of_layers(2, 4, 2)
    for text in ("max_split_size_mb:64", "roundup_power2_divisions:4"):
        simulate(timeline, parse_settings(text, (2, 11)), torch=(2, 11))
