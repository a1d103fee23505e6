"""Over how many ranks FSDP's weights are spread, and whether gathered weights go after forward."""

import pytest

from opened import make_target, resolve
from vramwise.documents.document import parse_document
from vramwise.ghost.sharding import sharding_of

FSDP2 = "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"


def run_of(text: str, gpus: int = 8, versions=()):
    target = make_target(env={}, look_around=False, gpus=gpus, versions=versions)
    return resolve(parse_document("config.yml", text.encode()), target)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (FSDP2, 8),
        (FSDP2 + "dp_shard_size: 4\n", 4),
        (FSDP2 + "dp_replicate_size: 2\n", 4),
        (FSDP2 + "dp_replicate_size: 4\ndp_shard_size: 2\n", 2),
        (FSDP2 + "dp_shard_size: 1\n", 8),
        (FSDP2 + "dp_shard_size: 16\n", 8),
        (FSDP2 + "dp_replicate_size: 16\n", 1),
        (FSDP2 + "context_parallel_size: 2\ndp_replicate_size: 2\n", 2),
        ("fsdp_config: {offload_params: false}\ndp_shard_size: 4\n", 4),
    ],
)
def test_ranks_that_spread_weights(text, ranks):
    run = run_of(text)
    assert run.sharding.shard_ranks == ranks
    assert run.batch.effective_batch_size == run.batch.data_parallel


@pytest.mark.parametrize(
    ("text", "goes"),
    [
        ("fsdp_version: 2\nfsdp_config: {reshard_after_forward: false}\n", False),
        ("fsdp_version: 2\nfsdp_config: {offload_params: false}\n", True),
        ("fsdp_config: {reshard_after_forward: false}\n", False),
    ],
)
def test_gathered_weights_go_after_forward(text, goes):
    assert run_of(text).sharding.reshard_after_forward is goes


def test_fsdp1_knows_neither():
    run = run_of("fsdp_config: {reshard_after_forward: false}\ndp_shard_size: 4\n", versions=("axolotl==0.19.0",))
    assert (run.sharding.shard_ranks, run.sharding.reshard_after_forward) == (8, True)


@pytest.mark.parametrize(("version", "apart"), [("0.19.0", True), ("0.20.0", True), ("0.21.0", False)])
def test_adapters_are_parts_of_their_blocks_units_since_axolotl_0_21(version, apart):
    run = run_of(FSDP2 + "adapter: lora\nlora_r: 8\n", versions=(f"axolotl=={version}",))
    fsdp = sharding_of(run).fsdp
    assert fsdp is not None
    assert fsdp.one_root
    assert fsdp.adapters_apart == apart


@pytest.mark.parametrize(("version", "kind"), [("0.19.0", "fsdp1"), ("0.20.0", "fsdp2"), ("0.21.0", "fsdp2")])
def test_fsdp_1_is_gone_since_axolotl_0_20(version, kind):
    assert run_of("fsdp_config: {offload_params: false}\n", versions=(f"axolotl=={version}",)).sharding.kind == kind


def test_zeros_settings_reach_the_run():
    inline = "deepspeed: {zero_optimization: {stage: 3, reduce_bucket_size: auto, max_live_parameters: 0}}\n"
    run = run_of(inline)
    assert run.sharding.kind == "zero3"
    assert run.sharding.zero is not None
    assert (run.sharding.zero.reduce_bucket, run.sharding.zero.most_live, run.sharding.zero.overlaps) == (None, 0, True)
    assert run_of("deepspeed: {zero_optimization: {stage: 0}}\n").sharding.zero is None
    assert run_of(FSDP2).sharding.zero is None
