"""Packed rows under sdpa: the variable-length kernel takes them where the run and the model allow it."""

from dataclasses import replace

import pytest

from truth import BUNDLED, cases
from vramwise.ghost.build import Builder
from vramwise.ghost.dtypes import BF16, FP32
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.loading import load
from vramwise.ghost.loops.sft import ghost_run
from vramwise.ghost.model.kernels import Sdpa, VarlenSdpa
from vramwise.ghost.model.rotary import rotate, rotate_halves
from vramwise.ghost.sharding import sharding_of
from vramwise.ghost.tape import Tape
from vramwise.timeline import Action

LORA = next(case for case in cases(BUNDLED) if case.name == "lora_llama8b_s1024_b1_nogc")
MODEL = replace(LORA.model, num_hidden_layers=1)
PACKED = LORA.run.changed(sample_packing=True, packing_rows="micro", micro_batch_size=2, varlen_sdpa=True)


@pytest.mark.parametrize(
    ("run", "model", "kernel"),
    [
        (PACKED, MODEL, VarlenSdpa),
        (PACKED.changed(varlen_sdpa=False), MODEL, Sdpa),
        (PACKED.changed(packing_rows="none"), MODEL, Sdpa),
        (PACKED, replace(MODEL, sliding_window=512, layer_types=()), Sdpa),
        (PACKED, replace(MODEL, head_dim=512), Sdpa),
    ],
)
def test_which_kernel_packed_rows_get(run, model, kernel):
    weights = load(Tape(Hardware()), model, run, sharding_of(run))
    assert isinstance(Builder(weights).block(0).attention.kernel, kernel)


def labels_of(run):
    timeline, _ = ghost_run(run, MODEL, steps=2)
    return {timeline.tags[event.tag].label for event in timeline.events if event.action == Action.ALLOC}


def test_it_needs_no_mask():
    assert "attention mask" not in labels_of(PACKED)
    assert "attention mask" in labels_of(PACKED.changed(varlen_sdpa=False))


@pytest.mark.parametrize(("dtype", "masks"), [(BF16, 0), (FP32, 1)])
def test_wide_queries_take_the_ordinary_way_under_a_mask_of_each_layer(dtype, masks):
    """The kernel has no fp32, which the rotation makes of queries where the embeddings are in it."""
    t = Tape(Hardware())
    t.autocast = BF16
    query, key, value = (t.new((2, 4, 64, 32), kind) for kind in (dtype, dtype, BF16))
    output, _ = VarlenSdpa(packed_eval=False)(t, query, key, value, None)
    sizes = [event.size_bytes for event in t.events if event.action == Action.ALLOC]
    assert sizes.count(2 * 64 * 64 * 2) == masks  # as numbers in bf16
    assert output.shape == (2, 64, 128)


@pytest.mark.parametrize("turn", [rotate, rotate_halves])
def test_tables_of_several_rows_are_for_all_heads_of_each(turn):
    """Fewer key heads than packed rows, each with positions of its own: keys keep their shape."""
    t = Tape(Hardware())
    query, key = t.new((4, 8, 64, 16), BF16), t.new((4, 1, 64, 16), BF16)
    cos, sin = (t.new((4, 64, 16 if turn is rotate else 8), BF16) for _ in range(2))
    turned = turn(t, query, key, cos, sin)
    assert [x.shape for x in turned] == [query.shape, key.shape]
