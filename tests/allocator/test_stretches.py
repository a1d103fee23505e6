"""Stretches that are alike, played as a whole: the same figures as request by request, whatever comes."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightly import examples
from vramwise.allocator.quick import player
from vramwise.allocator.quick.player import QuickPlayer
from vramwise.allocator.quick.shelf import FlatShelf
from vramwise.allocator.quick.stretches import Known
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.timeline import Action, Event, Phase, Repeat, Tag, Timeline
from vramwise.units import MIB

KIB = 1024
SIZES = [4 * KIB, 100 * KIB, 512 * KIB, MIB, 3 * MIB, 3 * MIB + 512, 12 * MIB, 16 * MIB, 30 * MIB]
MODES = ["", "expandable_segments:True"]
Plan = list[tuple[int, int]]


class Writer:
    """A run of layers: each asks and frees by the same plan, and some of what it makes stays until the way back."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.events: list[Event] = []
        self.cuts: list[int] = []
        self.count = 0
        self.side = chance.random() < 0.3  # layers copy something on another stream

    def alloc(self, size: int, stream: int = 0) -> tuple[int, int]:
        self.count += 1
        self.events.append(Event(Action.ALLOC, self.count, size, stream, 0))
        return self.count, size

    def free(self, tensor: tuple[int, int]) -> None:
        self.events.append(Event(Action.FREE, *tensor, 0, 0))

    def layers(self, count: int, forward: Plan, back: Plan) -> None:
        """A way forward and a way back; what is left of it goes."""
        kept = [self.layer(forward, []) for _ in range(count)]
        left = [tensor for _ in range(count) for tensor in self.layer(back, kept.pop())]
        self.cuts.append(len(self.events))
        for tensor in left:
            self.free(tensor)

    def plan(self) -> Plan:
        """Requests, and how many requests later each goes (0: it stays)."""
        choice = self.chance.choice
        return [(choice(SIZES), choice([0, 1, 1, 2, 3, 5])) for _ in range(self.chance.randint(14, 24))]

    def layer(self, plan: Plan, before: list[tuple[int, int]]) -> list[tuple[int, int]]:
        self.cuts.append(len(self.events))
        stays, due = [], []
        for at, (size, life) in enumerate(plan):
            made = self.alloc(size, int(self.side and at % 5 == 2))
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


def run_of_layers(seed: int, layers: int, passes: int, spare: int = 0) -> Timeline:
    """`spare`: so much memory has been in use before, and is free now."""
    writer = Writer(Random(seed))
    if spare:
        writer.free(writer.alloc(spare))
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


@settings(max_examples=examples(250), deadline=None)
@given(
    st.integers(0, 10**9),
    st.integers(2, 9),
    st.sampled_from(MODES),
    st.sampled_from([(2, 11), (2, 13)]),
    st.sampled_from([0, 0, 100 * MIB, 400 * MIB, 4096 * MIB]),
)
def test_same_figures_as_request_by_request(seed, layers, mode, torch, spare):
    timeline = run_of_layers(seed, layers, 4, spare)
    allocator = parse_settings(mode, torch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(player, "_WORTH_KNOWING", 4)  # these layers are short
        compare(timeline, allocator, torch)


def turns_of_layers(seed: int, layers: int, times: int) -> Timeline:
    """Micro-steps, written once, of which each frees what the one before left; a part of them is larger before."""
    writer = Writer(Random(seed))
    forward, back = writer.plan(), writer.plan()
    if writer.chance.random() < 0.5:
        writer.layers(layers + 2, forward, back)
    loss, step = writer.alloc(512), writer.alloc(writer.chance.choice(SIZES))
    start = len(writer.events)
    writer.layers(layers, forward, back)
    writer.free(loss)
    found = writer.alloc(512)
    writer.cuts.append(len(writer.events))
    repeat = Repeat(start, len(writer.events), times, ((loss[0], found[0]),))
    writer.free(step)
    writer.layers(layers, forward, back)
    timeline = Timeline(events=writer.events, tags=[Tag("other", "")], phases=[Phase("step", 1)], cuts=writer.cuts)
    return replace(timeline, repeats=[repeat])


@settings(max_examples=examples(200), deadline=None)
@given(
    st.integers(0, 10**9),
    st.integers(2, 6),
    st.integers(1, 6),
    st.sampled_from(MODES),
    st.sampled_from([(2, 11), (2, 13)]),
)
def test_same_figures_of_turns_that_repeat(seed, layers, times, mode, torch):
    """What is known of a pool is followed from layer to layer and from turn to turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(player, "_WORTH_KNOWING", 4)
        compare(turns_of_layers(seed, layers, times), parse_settings(mode, torch), torch)


@pytest.mark.parametrize("mode", MODES)
def test_later_turns_follow_what_is_known(mode, monkeypatch):
    """What is compared above is not played each time."""
    followed, follow = [], FlatShelf.follow
    monkeypatch.setattr(player, "_WORTH_KNOWING", 4)
    monkeypatch.setattr(FlatShelf, "follow", lambda self, *of: followed.append(1) or follow(self, *of))
    for seed in range(12):
        simulate(turns_of_layers(seed, 6, 6), parse_settings(mode, (2, 11)), torch=(2, 11))
    assert len(followed) > 100


def compare(timeline, allocator, torch):
    whole = simulate(timeline, allocator, torch=torch)
    assert whole == simulate(timeline, allocator, torch=torch, plainly=True)
    for share in (0.97, 0.8):
        total = int(whole.peak_reserved_bytes * share)
        tight = simulate(timeline, allocator, torch=torch, total_bytes=total)
        assert tight == simulate(timeline, allocator, torch=torch, total_bytes=total, plainly=True)


def test_most_of_it_need_not_be_played(monkeypatch):
    """What is compared above is not the slow way twice: where there is room, what comes and goes is left out."""
    steps, again = [], []
    play, known = FlatShelf.play, Known.again

    def counted(self, program, own, grow):
        steps.append(len(program))
        play(self, program, own, grow)

    def noted(self, *state, counted):
        again.append(known(self, *state, counted=counted))
        return again[-1]

    monkeypatch.setattr(FlatShelf, "play", counted)
    monkeypatch.setattr(Known, "again", noted)
    timeline = run_of_layers(1, 12, 6, 4096 * MIB)
    simulate(timeline, parse_settings(MODES[1], (2, 11)), torch=(2, 11))
    assert sum(steps) < 0.8 * len(timeline.events)
    monkeypatch.setattr(player, "_WORTH_KNOWING", 0)
    simulate(timeline, parse_settings(MODES[1], (2, 11)), torch=(2, 11))
    assert any(found is not None for found in again)


def test_plain_segments_are_played_as_a_whole_too(monkeypatch):
    """Also where one pool needs new memory, and though some tensors get more than they ask for."""
    played, larger, grown = [], [], []
    whole, more = QuickPlayer._whole, QuickPlayer._larger

    def noted(self, *of):
        before = self.allocator.reserved_bytes
        played.append(whole(self, *of))
        grown.append(played[-1] and self.allocator.reserved_bytes > before)
        return played[-1]

    monkeypatch.setattr(QuickPlayer, "_whole", noted)
    monkeypatch.setattr(QuickPlayer, "_larger", lambda self, *of: larger.append(more(self, *of)) or larger[-1])
    compare(run_of_layers(2, 9, 6), parse_settings("", (2, 11)), (2, 11))
    assert sum(played) > 40
    assert any(larger)
    assert any(grown)
    assert not all(played)  # both pools needed some


def test_settings_under_which_blocks_are_chosen_otherwise_are_played_plainly(monkeypatch):
    monkeypatch.setattr(QuickPlayer, "play", lambda *_: pytest.fail("played quickly"))
    timeline = run_of_layers(2, 4, 2)
    for text in ("max_split_size_mb:64", "roundup_power2_divisions:4"):
        simulate(timeline, parse_settings(text, (2, 11)), torch=(2, 11))
