"""What a block does where its family's facts say so: layers that are not turned, norms of heads, parallel residuals."""

from dataclasses import replace

import pytest

from made_up_runs import RUN, small_model
from truth import H200
from vramwise.ghost.build import Builder
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.loading import load
from vramwise.ghost.loops.sft import ghost_run
from vramwise.ghost.model.block import ParallelBlock
from vramwise.ghost.sharding import sharding_of
from vramwise.ghost.tape import Tape

FULL = RUN.changed(adapter=None, lora_r=None, sequence_len=64, attn_implementation="sdpa")


def builder(model):
    return Builder(load(Tape(Hardware()), model, FULL, sharding_of(FULL)))


def events(model):
    return len(ghost_run(FULL, model, gpu=H200, steps=2)[0].events)


@pytest.mark.parametrize(
    ("model_type", "fields", "turned"),
    [
        ("smollm3", {}, [True, True, True, False]),
        ("smollm3", {"no_rope_layers": [0, 1, 1, 1]}, [False, True, True, True]),
        ("cohere2", {}, [True, True, True, False]),
        ("llama", {}, [True] * 4),
    ],
)
def test_layers_without_rotary_embeddings_are_not_turned(model_type, fields, turned):
    built = builder(small_model(model_type, num_hidden_layers=4, **fields))
    assert [built.attentions.rotation(layer) is not None for layer in range(4)] == turned


@pytest.mark.parametrize(
    ("model_type", "fields"), [("hunyuan_v1_dense", {}), ("phi", {"qk_layernorm": True}), ("qwen3", {})]
)
def test_norms_of_heads_run_under_whichever_name(model_type, fields):
    block = builder(small_model(model_type, **fields)).block(0)
    assert block.attention.q_norm is not None
    assert block.attention.k_norm is not None


def test_norms_after_the_rotation_cost_what_norms_before_it_do():
    normed = small_model("hunyuan_v1_dense")
    assert events(normed) > events(replace(normed, qk_norm="none"))


def test_stablelms_parallel_residual_has_one_norm():
    model = small_model("stablelm", use_parallel_residual=True)
    block = builder(model).block(0)
    assert isinstance(block, ParallelBlock)
    assert (block.order, block.norm2) == ("residual, attention", None)
