"""A config of a few words: each trainer's own keys, taken for its own file, and without a finding that it would stop."""

import pytest

from vramwise.api import Options, check
from vramwise.errors import VramwiseError
from vramwise.opening.subject import open_subject
from vramwise.trainers.compose import composed, composing_trainers

FULL = {
    "adapter": "lora",
    "rank": 4,
    "sequence_len": 1024,
    "micro_batch": 2,
    "accumulation": 3,
    "optimizer": "adamw_bnb_8bit",
    "checkpointing": False,
    "attention": "sdpa",
    "packing": True,
    "fused_loss": True,
    "eval_batch": 5,
}
KEYS = {
    "axolotl": {
        "lora_r": 4,
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 3,
        "optimizer": "adamw_bnb_8bit",
        "gradient_checkpointing": False,
        "attn_implementation": "sdpa",
        "sample_packing": True,
        "liger_fused_linear_cross_entropy": True,
        "eval_batch_size": 5,
    },
    "trl": {
        "use_peft": True,
        "lora_r": 4,
        "lora_alpha": 8,
        "max_length": 1024,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 3,
        "optim": "adamw_bnb_8bit",
        "gradient_checkpointing": False,
        "attn_implementation": "sdpa",
        "packing": True,
        "per_device_eval_batch_size": 5,
    },
    "llamafactory": {
        "finetuning_type": "lora",
        "lora_rank": 4,
        "cutoff_len": 1024,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 3,
        "optim": "adamw_bnb_8bit",
        "disable_gradient_checkpointing": True,
        "flash_attn": "sdpa",
        "packing": True,
        "neat_packing": True,
        "enable_liger_kernel": True,
        "per_device_eval_batch_size": 5,
    },
}


@pytest.mark.parametrize("trainer", KEYS)
def test_every_wish_has_its_key(trainer):
    assert trainer in composing_trainers()
    name, values = composed("m", FULL, trainer)
    assert name == trainer
    assert values.items() >= KEYS[trainer].items()


@pytest.mark.parametrize("trainer", KEYS)
@pytest.mark.parametrize("adapter", ["none", "lora", "qlora"])
def test_the_run_is_the_one_that_was_wished(trainer, adapter):
    wished = {**FULL, "adapter": adapter, "rank": None if adapter == "none" else 4, "eval_batch": 2}
    run = open_subject(composed("Qwen/Qwen2.5-0.5B", wished, trainer)[1], Options(text_alone=True)).run
    assert (run.trainer, run.objective.kind, run.adapter.kind) == (
        trainer,
        "tokens",
        None if adapter == "none" else adapter,
    )
    assert (run.batch.micro_batch_size, run.batch.gradient_accumulation_steps, run.evaluation.eval_batch_size) == (
        2,
        3,
        2,
    )
    assert (run.optimizer.name, run.savings.recompute, run.kernels.attn_implementation) == (
        "adamw_bnb_8bit",
        False,
        "sdpa",
    )
    assert (run.shapes.sample_packing, run.evaluation.evaluates) == (True, True)
    assert run.kernels.loss_kernel != "stock"
    assert run.adapter.lora_r == wished["rank"]


@pytest.mark.parametrize("trainer", KEYS)
@pytest.mark.parametrize("wished", [{}, {"adapter": "qlora"}, {**FULL, "packing": False}])
def test_its_own_rules_find_no_error_in_it(trainer, wished):
    [report] = check(composed("Qwen/Qwen2.5-0.5B", wished, trainer)[1], text_alone=True, trainer=trainer)
    assert report.run.trainer == trainer
    assert [one.rule for one in report.findings if one.severity.value == "error"] == []


def test_nothing_wished_is_the_default():
    assert composed("m", {}) == ("axolotl", {"base_model": "m"})
    with pytest.raises(VramwiseError, match="unknown method oft"):
        composed("m", {"adapter": "oft"})
