"""What is read from a DeepSpeed config: stage, offload, sizes, and which optimizer runs."""

import pytest

from vramwise.trainers.deepspeed import read_deepspeed, zero_settings
from vramwise.types import ZeroSettings


def test_deepspeeds_own_defaults():
    assert zero_settings({"stage": 2}) == ZeroSettings()
    assert zero_settings({"stage": 3}) == ZeroSettings(overlaps=True)
    assert zero_settings({"stage": 3, "overlap_comm": False}) == ZeroSettings()


def test_sizes_are_read_under_both_names():
    """`stage3_` stands before most of them, and Axolotl's files leave it out; YAML reads 1e9 as a word."""
    written = {"stage3_max_live_parameters": 5e8, "max_reuse_distance": "1e8", "sub_group_size": 0}
    found = zero_settings({"stage": 3, "stage3_prefetch_bucket_size": "auto", **written})
    assert (found.most_live, found.reuse_distance, found.sub_group) == (500_000_000, 100_000_000, 0)
    assert found.prefetch is None


@pytest.mark.parametrize("value", [True, -1, "much", None, [], float("nan"), 1e300])
def test_what_is_no_size_is_the_default(value):
    assert zero_settings({"stage": 2, "reduce_bucket_size": value}).reduce_bucket == 500_000_000


def test_an_optimizer_in_the_json_is_deepspeeds_own():
    named = {"zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}
    assert read_deepspeed(named, None).settings.optimizer == "AdamW"
    assert read_deepspeed({"zero_optimization": {"stage": 2}, "optimizer": "adam"}, None).settings.optimizer is None


@pytest.mark.parametrize(
    ("name", "stage", "params", "optimizer"),
    [
        ("zero1.json", 1, False, False),
        ("zero2.json", 2, False, True),
        ("zero2_torch_compile.json", 2, False, True),
        ("zero3_bf16.json", 3, False, False),
        ("zero3_bf16_cpuoffload_params.json", 3, True, False),
        ("zero3_bf16_cpuoffload_all.json", 3, True, True),
    ],
)
def test_files_that_are_shipped(name, stage, params, optimizer):
    found = read_deepspeed(f"deepspeed_configs/{name}", None)
    assert (found.stage, found.offload_params, found.offload_optimizer) == (stage, params, optimizer)
    assert found.settings.overlaps
    assert found.settings.reduce_bucket == (None if stage == 3 else 500_000_000)
    assert found.settings.most_live == (0 if stage == 3 else 10**9)
