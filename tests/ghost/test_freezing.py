"""Partly frozen models: what is named is trained, the rest has neither gradients nor optimizer states."""

from dataclasses import replace

import pytest

from truth import BUNDLED, H200, cases
from vramwise.allocator.repeats import unroll
from vramwise.errors import VramwiseError
from vramwise.ghost.loops.sft import ghost_run
from vramwise.timeline import Action

FULL = next(case for case in cases(BUNDLED) if case.name == "full_tinyllama_s1024_b2")
LORA = next(case for case in cases(BUNDLED) if case.name == "lora_llama8b_s1024_b1_nogc")


def gradients(case, **changes) -> set[str]:
    run, model = case.run.changed(sequence_len=64, **changes), replace(case.model, num_hidden_layers=3)
    timeline = unroll(ghost_run(run, model, gpu=H200, steps=1)[0])
    tags = {timeline.tags[event.tag] for event in timeline.events if event.action == Action.ALLOC}
    return {tag.label for tag in tags if tag.category == "gradients"}


def test_only_what_matches_gets_a_gradient():
    found = gradients(FULL, unfrozen=(r"model\.layers\.2\.mlp", r"lm_head"))
    assert len(found) == 4
    assert all(name.startswith(("model.layers.2.mlp.", "lm_head")) for name in found)


def test_names_are_matched_from_their_start():
    assert gradients(FULL, unfrozen=(r"lm_head|layers\.2",)) == {"lm_head.weight"}


def test_adapters_bear_pefts_names_and_base_weights_may_be_opened():
    found = gradients(LORA, unfrozen=(r".*layers\.1\..*q_proj\.lora_A", r"base_model\.model\.lm_head"))
    assert found == {"model.layers.1.self_attn.q_proj.lora_A", "lm_head.weight"}


def test_nothing_left_to_train_is_said():
    with pytest.raises(VramwiseError, match=r"nothing would be trained: .* no module named x"):
        gradients(FULL, unfrozen=("x",))


def test_what_is_no_regular_expression_is_said():
    with pytest.raises(VramwiseError, match=r"'\(' is not a regular expression"):
        gradients(FULL, unfrozen=("(",))
