"""Sharded training: one rank's buffers, against what torch itself makes, and against what follows from the mechanism.

The measured bytes are from `bench/sharded_rank.py` (torch 2.13 on the CPU, one of four ranks): the most that lives in
forward and in backward of the second step, without optimizer states.
"""

import pytest

from sharded_runs import MODEL, anything_but_states, ghost, labelled, peaks
from truth import H200
from vramwise.ghost.dtypes import BF16, FP32
from vramwise.ghost.hardware import hardware_of
from vramwise.ghost.sharding.ddp import bucket_sizes
from vramwise.ghost.tape import Parameter, Tape
from vramwise.models.parameters import parameters
from vramwise.timeline import Action

ELEMENTS = {
    part: sum(p.numel for p in parameters(MODEL) if (".layers.0." in p.name if part == "block" else belongs(p.name)))
    for part, belongs in {
        "model": lambda _: True,
        "block": lambda _: False,
        "root": lambda name: ".layers." not in name,
        "embeddings": lambda name: "embed_tokens" in name,
    }.items()
}


def shards(tag, _stream):
    return tag.category == "weights" and not any(word in tag.label for word in ("gathered", "rotary", ": whole"))


def whole_gradients(tag, _stream):
    return tag.category == "gradients" and "exchanged" not in tag.label


REENTRANT = {"recompute": True, "checkpointing_reentrant": True}
SYNCED = {"gradient_accumulation_steps": 3, "sync_each_batch": True}


@pytest.mark.parametrize(
    ("engine", "changes", "forward", "backward"),
    [
        ("transformers", {}, 130_376_308, 174_077_160),
        ("transformers", REENTRANT, 126_289_268, 174_085_608),
        ("transformers", {"gradient_accumulation_steps": 3}, 230_725_236, 228_366_696),
        ("transformers", REENTRANT | {"reshard_after_forward": False}, 193_869_172, 208_106_216),
        ("transformers", {"gpus": 8, "data_parallel": 8, "shard_ranks": 4}, 130_376_308, 190_972_392),
        ("transformers", {"tied": True}, 110_973_920, 188_072_676),
        ("axolotl", {}, 167_806_692, 170_699_240),
        ("axolotl", {"recompute": True, "checkpointing_reentrant": False}, 167_806_692, 170_699_240),
        ("axolotl", {"reshard_after_forward": False}, 167_806_692, 170_699_240),
        ("transformers", {"sharding": "fsdp1"}, 132_095_872, 264_191_624),
        ("transformers", {"sharding": "fsdp1", "gradient_accumulation_steps": 3}, 232_444_800, 347_134_600),
        ("transformers", SYNCED, 180_550_800, 200_589_828),
        ("axolotl", SYNCED, 192_893_952, 189_768_340),
        ("transformers", SYNCED | {"sharding": "fsdp1"}, 182_270_592, 296_960_392),
    ],
)
def test_a_full_fine_tune_holds_what_torch_holds(engine, changes, forward, backward):
    found = peaks(ghost(engine, **changes), anything_but_states)
    # rotary tables, masks and counters are other ones on the CPU, and go at other times
    assert abs(max(found["forward"], found["loss"]) - forward) < 16384
    assert abs(found["backward"] - backward) < 16384


@pytest.mark.parametrize(
    ("engine", "changes", "forward", "backward"),
    [
        # each adapter matrix is gathered by itself there, here with its block
        ("axolotl", REENTRANT, 168_694_608, 161_416_420),
        ("axolotl", {}, 168_694_608, 165_874_020),
        ("transformers", REENTRANT, 102_057_184, 92_769_108),
        ("transformers", {}, 105_728_352, 74_974_292),
    ],
)
def test_adapters_hold_what_torch_holds(engine, changes, forward, backward):
    found = peaks(ghost(engine, adapter="lora", **changes), anything_but_states)
    assert max(found["forward"], found["loss"]) == pytest.approx(forward, rel=0.005)
    assert found["backward"] == pytest.approx(backward, rel=0.005)


@pytest.mark.parametrize(
    ("engine", "sharding", "width"),
    [("axolotl", "fsdp2", 2), ("transformers", "fsdp2", 4), ("axolotl", "fsdp1", 4), ("transformers", "fsdp1", 4)],
)
def test_axolotls_fsdp_2_alone_leaves_shards_as_they_were_loaded(engine, sharding, width):
    timeline = ghost(engine, sharding=sharding)
    share = ELEMENTS["model"] // 4 * width
    assert peaks(timeline, shards)["forward"] == share
    assert peaks(timeline, lambda tag, _: tag.category == "optimizer")["forward"] == 2 * share
    assert peaks(timeline, labelled("exchanged"))["optimizer"] == share


def test_a_flat_buffer_lies_beside_gathered_weights():
    """Axolotl's root is gathered first, and its flat buffer is there until the first block has copied out its own."""
    timeline = ghost("axolotl")
    both = 2 * (ELEMENTS["root"] + ELEMENTS["block"])
    assert peaks(timeline, labelled("gathered", (0,)))["forward"] == both
    assert peaks(timeline, labelled("gathered", (1,)))["forward"] == both


def test_the_next_block_is_gathered_ahead():
    def block_weights(tag, _stream):
        return "layers." in tag.label and "gathered" in tag.label

    assert peaks(ghost("axolotl"), block_weights)["backward"] == 2 * 2 * ELEMENTS["block"]
    # with adapters apart it is gathered at the end of a block's backward, and still beside it
    adapters = ghost("axolotl", adapter="lora", lora_target_linear=False, lora_target_modules=("q_proj",))
    assert peaks(adapters, block_weights)["backward"] == pytest.approx(2 * 2 * ELEMENTS["block"], rel=0.02)


def test_gathered_weights_stay_where_they_are_not_dropped():
    timeline = ghost("axolotl", reshard_after_forward=False)
    assert peaks(timeline, labelled("gathered", (0,)))["backward"] == 2 * ELEMENTS["model"]
    assert peaks(ghost("axolotl"), labelled("gathered", (0,)))["backward"] == 2 * (ELEMENTS["root"] + ELEMENTS["block"])


@pytest.mark.parametrize("sharding", ["fsdp1", "fsdp2"])
def test_gradients_accumulate_whole(sharding):
    def gradients(tag, _stream):
        return tag.category == "gradients"

    once, thrice = (ghost(sharding=sharding, gradient_accumulation_steps=n) for n in (1, 3))
    assert peaks(once, gradients)["forward"] == 0
    assert peaks(thrice, gradients)["forward"] == 2 * ELEMENTS["model"]


def test_embeddings_are_a_unit_of_their_own_where_the_head_is_not_theirs():
    assert peaks(ghost(), whole_gradients)["backward"] == 2 * (ELEMENTS["root"] - ELEMENTS["embeddings"])
    assert peaks(ghost("axolotl"), whole_gradients)["backward"] == 2 * ELEMENTS["root"]


def test_groups_that_hold_the_same_shards():
    """Eight ranks in two groups: each rank holds a quarter, and keeps what was summed over groups."""
    grouped, four = ghost(gpus=8, data_parallel=8, shard_ranks=4), ghost()
    assert peaks(grouped, shards)["load"] == peaks(four, shards)["load"] == ELEMENTS["model"]
    more = peaks(grouped, labelled("exchanged"))["backward"] - peaks(four, labelled("exchanged"))["backward"]
    # a sum in bf16 of each unit but the one that is at it
    assert more == 2 * (ELEMENTS["model"] - ELEMENTS["embeddings"]) // 4


def test_offloaded_shards_come_for_a_gather_and_nothing_of_them_stays():
    timeline = ghost("axolotl", offload_params=True, offload_optimizer=True)
    assert peaks(timeline, shards)["forward"] == 0
    assert peaks(timeline, lambda tag, _: tag.category in ("gradients", "optimizer"))["optimizer"] == 0
    copied = 2 * ELEMENTS["root"] // 4
    assert peaks(timeline, labelled("root: gathered", (1,)))["forward"] == 2 * ELEMENTS["root"] + copied


def test_shares_are_whole_rows():
    """Sixteen ranks of an adapter with eight rows: each holds one, and half of them none that counts."""
    options = {"adapter": "lora", "lora_r": 8, "lora_target_linear": False, "lora_target_modules": ("q_proj",)}
    timeline = ghost(gpus=16, data_parallel=16, **options)
    grads = peaks(timeline, labelled("exchanged", (2,)))["optimizer"]
    assert grads == MODEL.num_hidden_layers * 4 * (512 + 512 // 16 * 8)


def test_evaluation_leaves_nothing_gathered():
    for engine in ("axolotl", "transformers"):
        timeline = ghost(engine, evaluates=True, eval_batch_size=1, eval_sequence_len=32, eval_steps=1)
        assert peaks(timeline, labelled("gathered"))["eval"] > 2 * ELEMENTS["block"]
        assert peaks(timeline, labelled("gathered"))["optimizer"] == 0


def test_ddp_first_has_one_bucket_and_then_smaller_ones():
    timeline = ghost(sharding="ddp")
    made = [
        e.size_bytes for e in timeline.events if e.action == Action.ALLOC and "bucket" in timeline.tags[e.tag].label
    ]
    assert made[0] == sum(made[1:]) == 2 * ELEMENTS["model"]
    # torch's own: 32,768,000, 27,436,032 and 40,144,896; norms come a little later there
    assert made[1:] == pytest.approx([32_768_000, 27_436_032, 40_144_896], abs=2048)


def test_ddp_buckets_by_type():
    t = Tape(hardware_of(H200, (2, 11)))
    sizes = [(1000, BF16), (20 << 20, BF16), (10, FP32), (1 << 20, BF16)]
    made = [Parameter(t, str(n), (n,), dtype, trainable=True) for n, dtype in sizes]
    assert bucket_sizes(made) == [2 << 20, 40 << 20, 40, 2000]


def test_older_accelerates_cast_frozen_shards_too():
    """`model.to(torch.float32)` at the end of `fsdp2_prepare_model` (accelerate up to 1.12)."""
    frozen = ELEMENTS["model"] // 4
    newer, older = [
        peaks(ghost(adapter="lora", fsdp_widens=widens), shards)["forward"] for widens in ("trained", "all")
    ]
    assert older - newer == 2 * frozen


def test_tensors_come_one_by_one_where_rank_0_alone_has_read_them():
    """The largest weight and its shard beside what is cut already, instead of everything outside of blocks."""
    whole = lambda tag, _: ": whole" in tag.label  # noqa: E731
    by_unit, by_tensor = [peaks(ghost("axolotl", shards_by_tensor=each), whole)["load"] for each in (False, True)]
    assert by_unit == 2 * ELEMENTS["root"]
    assert by_tensor == 2 * ELEMENTS["embeddings"]
