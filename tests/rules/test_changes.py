"""Changes: each has one effect wherever it is offered, in RunSpec's words, and a trainer's spelling."""

from inspect import signature

import pytest
from judging import judge

from opened import make_target, subject_of_text
from vramwise.diagnosis import advice
from vramwise.documents.edit import apply_edits
from vramwise.rules.checkpointing import checkpointing_unset
from vramwise.types import SETTINGS, Change
from vramwise.variants import changes

BASE = "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 2048\nmicro_batch_size: 5\ngradient_accumulation_steps: 2\n"
RUNS = {
    "plain": BASE,
    "eager": BASE + "attn_implementation: eager\nfp16: true\neval_batch_size: 8\nval_set_size: 0.1\n",
    "lora": BASE + "adapter: lora\nsample_packing: true\nbf16: false\n",
    "fsdp": BASE + "fsdp_version: 1\nfsdp_config:\n  state_dict_type: FULL_STATE_DICT\n",
    "fp8": BASE + "fp8: true\noptimizer: ao_adamw_8bit\n",
}


def builders():
    named = [item for name, item in vars(changes).items() if not name.startswith("_") and callable(item)]
    ours = [item for item in named if getattr(item, "__module__", "") == changes.__name__]
    return [
        item
        for item in ours
        if list(signature(item).parameters) == ["run"] and item.__name__ != "smaller_micro_batches"
    ]


@pytest.mark.parametrize("name", RUNS)
def test_every_change_is_in_words_that_its_trainer_can_spell(name):
    subject = subject_of_text(RUNS[name], make_target(gpus=2))
    known = set(SETTINGS) | set(changes.SETTINGS)
    for build in builders():
        change = build(subject.run)
        if change is None:
            continue
        assert isinstance(change, Change)
        assert set(change.fields) <= known, change.id
        assert change.why, change.id
        spelling = subject.trainer.spell(subject.run, change)
        if spelling is not None and spelling.edits:
            apply_edits(subject.document, spelling.edits)


def test_a_fused_loss_is_the_same_mathematics_everywhere():
    subject = subject_of_text(BASE)
    change = changes.fuse_loss(subject.run)
    assert (change.effect, change.safe) == ("rounding", False)
    told = advice.build("fuse-loss", subject, subject.trainer).fix
    assert (told.change, told.safe) == (change, False)
    assert told.effect_words == "same math, different kernels"


def test_halving_keeps_the_batch():
    assert list(changes.smaller_sizes(5, 2)) == [(2, 5), (1, 10)]
    change = changes.halve_micro_batch(subject_of_text(BASE).run)
    assert change.fields == {"micro_batch_size": 2, "gradient_accumulation_steps": 5}


def test_what_keeps_the_result_at_a_price_is_done_on_request_alone():
    _, [found] = judge(checkpointing_unset, BASE)
    assert found.fix.change.effect == "same"
    assert not found.fix.safe
    assert found.fix.effect_words == "same result, at a cost"


def test_reentrant_checkpointing_is_not_offered_to_a_partly_frozen_model():
    frozen = "gradient_checkpointing: true\nunfrozen_parameters:\n  - lm_head\n"
    subject = subject_of_text(BASE + frozen)
    change = changes.reentrant_checkpointing(subject.run)
    assert change is not None
    assert subject.trainer.spell(subject.run, change) is None
