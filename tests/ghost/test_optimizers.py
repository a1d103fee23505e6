"""An optimizer is one file that says its names; which of them a run's name means does not depend on their order."""

import pytest

from vramwise.ghost import optimizers
from vramwise.ghost.dtypes import BF16, FP32
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.optimizers.base import trained
from vramwise.ghost.tape import Parameter, Tape
from vramwise.timeline import Action

# what trainers accept
NAMES = [
    "adafactor",
    "adagrad",
    "adalomo",
    "adamc",
    "adamw_8bit",
    "adamw_anyprecision",
    "adamw_bnb_8bit",
    "adamw_torch",
    "adamw_torch_4bit",
    "adamw_torch_8bit",
    "adamw_torch_fused",
    "adamw_torch_npu_fused",
    "adamw_torch_xla",
    "ademamix",
    "ademamix_8bit",
    "adopt_adamw",
    "ao_adamw_4bit",
    "ao_adamw_8bit",
    "ao_adamw_fp8",
    "apollo_adamw",
    "apollo_adamw_layerwise",
    "came_pytorch",
    "dion",
    "flash_adam",
    "flash_adamw",
    "flash_lion",
    "flash_sgd",
    "flash_sgdw",
    "galore_adafactor",
    "galore_adafactor_layerwise",
    "galore_adamw",
    "galore_adamw_8bit",
    "galore_adamw_8bit_layerwise",
    "galore_adamw_layerwise",
    "grokadamw",
    "lion_32bit",
    "lion_8bit",
    "lomo",
    "muon",
    "optimi_adamw",
    "paged_adamw_32bit",
    "paged_adamw_8bit",
    "paged_ademamix_32bit",
    "paged_ademamix_8bit",
    "paged_lion_32bit",
    "paged_lion_8bit",
    "polora",
    "q_galore_adamw8bit",
    "rmsprop",
    "rmsprop_bnb",
    "rmsprop_bnb_32bit",
    "rmsprop_bnb_8bit",
    "schedule_free_adamw",
    "schedule_free_radam",
    "schedule_free_sgd",
    "sgd",
    "sinkgd",
    "stable_adamw",
]


def made(name):
    t = Tape(Hardware())
    weights = [Parameter(t, part, (64, 64), BF16, trainable=True) for part in ("mlp.weight", "norm.weight")]
    return optimizers._find(name).make(name, trained(weights))


@pytest.mark.parametrize(
    ("name", "kind", "facts"),
    [
        ("adamw_torch", "ForeachAdam", {"count": 2, "temporaries": 1}),
        ("adamw_torch_fused", "FusedAdam", {}),
        ("adamw_apex_fused", "FusedAdam", {}),
        ("sgd", "ForeachAdam", {"count": 0, "temporaries": 0}),
        ("rmsprop", "ForeachAdam", {"count": 1, "temporaries": 1}),
        ("adagrad", "ForeachAdam", {"count": 1, "temporaries": 2}),
        ("adafactor", "Adafactor", {}),
        ("came_pytorch", "Adafactor", {}),
        ("adamw_torch_8bit", "LowBitAdam", {"bits": 8}),
        ("ao_adamw_4bit", "LowBitAdam", {"bits": 4}),
        ("muon", "Muon", {}),
        ("adamw_bnb_8bit", "BitsAndBytes", {"count": 2, "bits": 8, "paged": False}),
        ("paged_adamw_32bit", "BitsAndBytes", {"count": 2, "bits": 32, "paged": True}),
        ("paged_lion_8bit", "BitsAndBytes", {"count": 1, "bits": 8, "paged": True}),
        ("ademamix_8bit", "BitsAndBytes", {"count": 3, "bits": 8, "paged": False}),
    ],
)
def test_what_a_name_means(name, kind, facts):
    optimizer = made(name)
    assert type(optimizer).__name__ == kind
    assert {fact: getattr(optimizer, fact) for fact in facts} == facts


@pytest.mark.parametrize("name", ["galore_adamw", "something_new", ""])
def test_what_no_file_handles_is_not_known(name):
    assert not optimizers.is_known(name)


def test_names_are_lower_case_and_one_kinds_alone():
    names = [name for kind in optimizers.all_kinds() for name in kind.names]
    assert len(names) == len(set(names))
    assert names == [name.lower() for name in names]


@pytest.mark.parametrize("name", NAMES)
def test_no_two_kinds_claim_the_same_name(name):
    exact = [kind for kind in optimizers.all_kinds() if name in kind.names]
    assert len(exact or [kind for kind in optimizers.all_kinds() if kind.handles(name)]) <= 1


def test_case_does_not_matter():
    assert optimizers.is_known("AdamW_Torch")


def test_schedule_free_adamw_keeps_two_states_and_one_groups_roots():
    """64 × 64 in bf16 is 8 KiB: two states of each of two parameters, then roots, the second group's beside the first's."""
    t = Tape(Hardware())
    weights = [Parameter(t, name, (64, 64), BF16, trainable=True) for name in ("mlp.weight", "norm.weight")]
    for weight in weights:
        weight.grad = weight
    before = len(t.events)
    optimizer = optimizers._find("schedule_free_adamw").make("schedule_free_adamw", trained(weights))
    optimizer.step(t)
    first = [(event.action, event.size_bytes) for event in t.events[before:]]
    assert [size for action, size in first if action == Action.ALLOC] == [8192] * 6
    assert len([action for action, _ in first if action == Action.FREE]) == 2
    before = len(t.events)
    optimizer.step(t)
    assert len(t.events) - before == 4


@pytest.mark.parametrize(
    ("name", "dtype", "basis"),
    [
        ("galore_adamw rank 8", FP32, 64 * 64 * 4),  # a view of the factor: all of it stays
        ("galore_adamw rank 8", BF16, 64 * 8 * 2),
        ("apollo_adamw rank 8", FP32, 64 * 8 * 4),
    ],
)
def test_projected_moments_and_what_projects_them_stay(name, dtype, basis):
    t = Tape(Hardware())
    weight = Parameter(t, "layers.0.mlp.up_proj.weight", (256, 64), dtype, trainable=True)
    weight.grad = t.new(weight.shape, dtype)
    before = t.count
    optimizer = optimizers.optimizer_named(name, trained([weight]))
    optimizer.step(t)
    gone = {event[1] for event in t.events if event[0] == Action.FREE}
    kept = [event[2] for event in t.events if event[0] == Action.ALLOC and event[1] >= before and event[1] not in gone]
    assert sorted(kept) == sorted([basis, *[256 * 8 * dtype.size] * 2])


def test_one_blocks_fp32_copies_are_made_before_training_and_stepped_by_another_optimizer():
    """BAdam over 64 × 64 in bf16: a copy of 16 KiB; at the first step its gradient, two states, roots, the way back."""
    t = Tape(Hardware())
    weight = Parameter(t, "layers.0.mlp.up_proj.weight", (64, 64), BF16, trainable=True)
    optimizer = optimizers.optimizer_named("badam adamw_torch", trained([weight]))
    before = len(t.events)
    optimizer.prepare(t)
    assert [event.size_bytes for event in t.events[before:] if event.action == Action.ALLOC] == [8192, 16384]
    weight.grad = t.new(weight.shape, BF16)
    before = len(t.events)
    optimizer.step(t)
    made = [event.size_bytes for event in t.events[before:] if event.action == Action.ALLOC]
    assert made == [16384, 16384, 16384, 16384, 8192]
    assert weight.grad is None
    assert t.events[-1].action == Action.EMPTY_CACHE
