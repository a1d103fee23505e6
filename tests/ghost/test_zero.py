"""ZeRO: one rank's buffers against what DeepSpeed itself makes, and what follows from its settings.

The measured MiB are from `bench/zero_rank.py --tiny` (DeepSpeed 0.19.8, torch 2.13 on the CPU, one of eight ranks): the
most that lives in each phase. Workspaces of matrix products are the card's own.
"""

from dataclasses import replace

import pytest

from sharded_runs import MODEL, anything_but_states, ghost, labelled, peaks
from vramwise.models.parameters import parameters
from vramwise.timeline import Timeline
from vramwise.trainers.deepspeed import as_released, read_deepspeed
from vramwise.types import ZeroSettings

MIB = 1024**2
ELEMENTS = sum(p.numel for p in parameters(MODEL))
HEAD = 2 * 32000 * 512
EIGHT = {"gpus": 8, "data_parallel": 8, "shard_ranks": 8, "autocast": False, "optimizer": "adamw_torch_fused"}
REENTRANT = {"recompute": True, "checkpointing_reentrant": True}
OVERLAPPED = ZeroSettings(overlaps=True)
SHIPPED_ZERO_3 = read_deepspeed("deepspeed_configs/zero3_bf16.json", None).settings
LOOSE_ZERO = ZeroSettings(overlaps=True, reduce_bucket=None, prefetch=None, keeps_under=None)
AUTO = replace(OVERLAPPED, reduce_bucket=None)


def zero(stage: int, settings: ZeroSettings, **changes: object) -> Timeline:
    return ghost(sharding=f"zero{stage}", zero=settings, **(EIGHT | changes))


def everything(tag, _stream):
    return tag.category != "workspace"


def states(tag, _stream):
    return tag.category == "optimizer"


@pytest.mark.parametrize(
    ("stage", "settings", "changes", "forward", "backward"),
    [
        (1, OVERLAPPED, {}, 181.5, 2170.5),
        (1, replace(AUTO, overlaps=False), {}, 181.5, 300.5),
        (1, OVERLAPPED, {"gpus": 1, "data_parallel": 1, "shard_ranks": 1}, 683.9, 2672.9),
        (2, AUTO, {}, 181.5, 236.5),
        (3, SHIPPED_ZERO_3, {}, 133.6, 164.9),
        (3, LOOSE_ZERO, {}, 205.9, 229.4),
        (3, SHIPPED_ZERO_3, {"adapter": "lora"}, 54.8, 54.9),
        (3, SHIPPED_ZERO_3, {"adapter": "lora"} | REENTRANT, 48.1, 79.3),
    ],
)
def test_a_rank_holds_what_deepspeed_holds(stage, settings, changes, forward, backward):
    found = peaks(zero(stage, settings, **changes), everything)
    assert max(found["forward"], found["loss"]) / MIB == pytest.approx(forward, abs=0.1)
    assert found["backward"] / MIB == pytest.approx(backward, abs=0.1)


def test_loading_makes_each_weight_whole_and_cuts_it():
    """The last one, the head, beside all shares."""
    assert peaks(zero(3, SHIPPED_ZERO_3, adapter="lora"), everything)["load"] / MIB == pytest.approx(43.2, abs=0.1)


@pytest.mark.parametrize("adapter", [None, "lora"])
def test_weights_loaded_in_fp32_are_cut_in_the_engines_type(adapter):
    """`zero.Init` makes every parameter in the type of DeepSpeed's config, whatever `from_pretrained` was asked for."""
    found = [
        peaks(
            zero(3, SHIPPED_ZERO_3, adapter=adapter, weights_dtype=dtype, fp32_embeddings=dtype == "fp32"), everything
        )
        for dtype in ("fp32", "bf16")
    ]
    assert found[0] == found[1]
    uncast = {"weights_dtype": "fp32", "precision": "fp32", "fp32_embeddings": True}
    whole = peaks(zero(3, SHIPPED_ZERO_3, adapter=adapter, **uncast), everything)
    assert whole["load"] > 1.6 * found[0]["load"]


@pytest.mark.parametrize(
    ("optimizer", "width"), [("adamw_torch_fused", 8), ("adamw_bnb_8bit", 2), ("lion_8bit", 1), ("sgd", 0)]
)
def test_the_runs_own_optimizer_steps_partitions(optimizer, width):
    """An eighth of all weights in fp32, and the states of that optimizer for it; embeddings are like anything else."""
    found = peaks(zero(2, AUTO, optimizer=optimizer), states)["forward"]
    assert found == pytest.approx(ELEMENTS / 8 * (4 + width), rel=0.02)


def test_paged_states_lie_outside():
    assert peaks(zero(2, AUTO, optimizer="paged_adamw_32bit"), states)["forward"] == pytest.approx(
        ELEMENTS / 8 * 4, rel=0.01
    )


def test_deepspeed_makes_an_optimizer_that_its_config_names():
    named = replace(AUTO, optimizer="AdamW")
    assert peaks(zero(2, named, optimizer="adamw_bnb_8bit"), states)["forward"] == pytest.approx(
        ELEMENTS / 8 * 12, rel=0.01
    )


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_one_rank_alone_has_an_engine_too(stage):
    found = peaks(zero(stage, AUTO, gpus=1, data_parallel=1, shard_ranks=1), states)
    assert found["forward"] == pytest.approx(ELEMENTS * 12, rel=0.01)


@pytest.mark.parametrize("stage", [2, 3])
def test_offloaded_states_leave_nothing_here(stage):
    found = peaks(zero(stage, AUTO, offload_optimizer=True), states)
    assert found["forward"] == 0
    gradients = peaks(zero(stage, AUTO, offload_optimizer=True), labelled("shares of gradients"))
    assert gradients.get("step", 0) == 0


def test_buckets_are_there_while_gradients_come():
    """Half a thousand million elements if nothing else is said, and twice that where exchanges overlap."""
    once, twice = (peaks(zero(2, settings), labelled("buckets")) for settings in (ZeroSettings(), OVERLAPPED))
    assert once["backward"] == 10**9
    assert twice["backward"] == 2 * 10**9
    assert twice["forward"] == 0


def test_stage_1_lets_whole_gradients_accumulate_and_stage_2_its_own():
    def gradients(tag, _stream):
        return tag.category == "gradients" and "bucket" not in tag.label

    changes = {"gradient_accumulation_steps": 3}
    assert peaks(zero(1, AUTO, **changes), gradients)["forward"] == 2 * ELEMENTS
    assert peaks(zero(2, AUTO, **changes), gradients)["forward"] < ELEMENTS


def test_stage_2_keeps_whole_gradients_of_weights_that_reach_into_its_partition():
    """The fullest rank has the end of the embeddings or of the head, whole, beside its part of the blocks."""
    kept = peaks(zero(2, AUTO), labelled("exchanged gradients"))["optimizer"]
    assert HEAD < kept < HEAD + 2 * ELEMENTS / 8 + MIB


def test_the_norm_is_of_copies_in_fp64():
    found = peaks(zero(3, SHIPPED_ZERO_3), labelled("gradient norm"))["optimizer"]
    assert found == 8 * 32000 * 512 // 8


def test_sub_groups_are_stepped_one_after_the_other():
    """Of size nought each weight is one: the fp32 gradient is that of the largest share."""
    single = peaks(zero(3, SHIPPED_ZERO_3), labelled("fp32 gradients of the partition"))["optimizer"]
    whole = peaks(zero(3, LOOSE_ZERO), labelled("fp32 gradients of the partition"))["optimizer"]
    assert single == 4 * 32000 * 512 // 8
    assert whole == pytest.approx(ELEMENTS / 8 * 6, rel=0.01)


def test_only_one_layers_weights_are_gathered_at_a_time():
    found = peaks(zero(3, SHIPPED_ZERO_3, **REENTRANT), labelled("gathered"))
    small = 2 * 13 * 512
    assert found["forward"] == found["loss"] == HEAD + small


def test_weights_used_again_soon_stay_gathered():
    alone = replace(LOOSE_ZERO, prefetch=0)  # gathering ahead keeps what it meets
    found = peaks(zero(3, alone), labelled("gathered"))
    assert found["loss"] == pytest.approx(2 * ELEMENTS, rel=0.01)
    near = peaks(zero(3, replace(alone, reuse_distance=10_000_000)), labelled("gathered"))
    assert near["loss"] < found["loss"]


def test_a_release_decides_whether_recomputed_frozen_weights_stay():
    """Since 0.19.3 they are released with the whole backward, not with their layer."""
    changes = {"adapter": "lora", **REENTRANT}
    before = peaks(zero(3, as_released(SHIPPED_ZERO_3, (0, 18, 9)), **changes), labelled("gathered"))
    since = peaks(zero(3, as_released(SHIPPED_ZERO_3, (0, 19, 3)), **changes), labelled("gathered"))
    blocks = 2 * ELEMENTS - 2 * HEAD
    assert since["backward"] == pytest.approx(HEAD + blocks, rel=0.02)
    assert before["backward"] < HEAD + blocks / 3


def test_a_release_decides_whether_adapters_are_cast():
    def adapters(tag, _stream):
        return "flat shares" in tag.label

    before, since = (
        peaks(zero(3, as_released(SHIPPED_ZERO_3, release), adapter="lora"), adapters)["forward"]
        for release in ((0, 18, 9), (0, 19, 8))
    )
    assert since == 2 * before


def test_a_fused_loss_keeps_the_head_for_as_long_as_the_model_runs():
    found = peaks(zero(3, SHIPPED_ZERO_3, loss_kernel="liger_fused_linear"), labelled("lm_head.weight: gathered"))
    assert found["loss"] == HEAD
    assert found["optimizer"] == 0


def test_fused_kernels_have_all_their_weights_gathered_while_they_run():
    """They read the weights of three layers at once, without calling those layers."""
    options = {"adapter": "lora", "fused_lora": ("qkv", "o", "mlp")}
    found = peaks(zero(3, SHIPPED_ZERO_3, **options), labelled("layers.0.mlp.gate_proj.weight: gathered"))
    assert found["forward"] == found["backward"] > 0
    assert found["optimizer"] == 0


def test_evaluation_and_packed_weights_run_too():
    timeline = zero(3, LOOSE_ZERO, evaluates=True, eval_batch_size=1, eval_sequence_len=32, eval_steps=1)
    assert peaks(timeline, labelled("gathered"))["eval"] >= HEAD
    quantised = zero(3, SHIPPED_ZERO_3, adapter="qlora", quantization="4bit", **REENTRANT)
    assert peaks(quantised, labelled("4-bit weights: gathered"))["forward"] > 0
    assert peaks(quantised, anything_but_states)["load"] > peaks(quantised, anything_but_states)["optimizer"]


def test_4_bit_weights_stay_gathered_as_long_as_their_graph():
    options = {"adapter": "qlora", "quantization": "4bit"}
    blocks = (2 * ELEMENTS - 2 * HEAD) / 4
    kept = peaks(zero(3, SHIPPED_ZERO_3, **options), labelled("4-bit weights: gathered"))
    assert kept["loss"] == pytest.approx(blocks, rel=0.01)
    old = as_released(SHIPPED_ZERO_3, (0, 18, 9))
    checkpointed = peaks(zero(3, old, **options, **REENTRANT), labelled("4-bit weights: gathered"))
    assert checkpointed["backward"] < blocks / 3
    assert checkpointed["loss"] == 0


def test_offloaded_weights_come_from_the_host():
    timeline = zero(3, SHIPPED_ZERO_3, offload_params=True, offload_optimizer=True)

    def shares(tag, _stream):
        return tag.category == "weights" and "gathered" not in tag.label and "rotary" not in tag.label

    assert peaks(timeline, shares)["optimizer"] == 0
    assert peaks(timeline, labelled("lm_head.weight: gathered"))["loss"] == HEAD + HEAD // 8
