"""transformers' own Trainer by a file of its arguments."""

import json

import pytest

from opened import make_target, subject_of_text, trainer_name
from vramwise.documents.document import parse_document
from vramwise.trainers.registry import trainer_named
from vramwise.variants.changes.activations import CHECKPOINT
from vramwise.verbs.check import Policy, check_subject

ARGUMENTS = {
    "model_name_or_path": "Qwen/Qwen2.5-0.5B",
    "output_dir": "out",
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "learning_rate": 5e-05,
    "num_train_epochs": 3.0,
    "optim": "adamw_torch",
    "bf16": True,
    "eval_strategy": "steps",
    "block_size": 512,
}


def run_of(version="5.22.2", **more):
    text = json.dumps(ARGUMENTS | more, indent=2)
    target = make_target(trainer="hf-trainer", versions=(f"transformers=={version}",))
    return subject_of_text(text, target, trainer="hf-trainer").run


def test_a_dump_is_recognised():
    assert trainer_name(parse_document("training_args.json", json.dumps(ARGUMENTS).encode())) == "hf-trainer"


def test_a_short_file_with_its_model_is_recognised():
    short = {"model_name_or_path": "x/y", "output_dir": "out", "per_device_train_batch_size": 4, "learning_rate": 1e-5}
    assert trainer_name(parse_document("arguments.json", json.dumps(short).encode())) == "hf-trainer"


@pytest.mark.parametrize(
    "values", [{"per_device_train_batch_size": 8}, {**ARGUMENTS, "stage": "sft"}, {**ARGUMENTS, "base_model": "m"}]
)
def test_what_says_too_little_or_something_else_is_not(values):
    assert trainer_name(parse_document("x.json", json.dumps(values).encode())) == "axolotl"


def test_what_it_comes_to():
    run = run_of()
    assert (run.batch.micro_batch_size, run.batch.gradient_accumulation_steps, run.evaluation.eval_batch_size) == (
        2,
        4,
        8,
    )
    assert (run.precision.compute, run.optimizer.name, run.shapes.sequence_len) == ("bf16", "adamw_torch", 512)
    assert (run.savings.gradient_checkpointing, run.kernels.loss_kernel, run.shapes.constant_shapes) == (
        False,
        "stock",
        True,
    )
    assert run.origins["weights_dtype"].kind == "assumed"
    assert run_of(use_liger_kernel=True).kernels.loss_kernel == "liger_fused_linear"
    assert run_of(torch_dtype="float16").precision.weights_dtype == "fp16"


def test_versions_of_transformers_differ():
    assert run_of("4.57.6").savings.checkpointing_reentrant
    assert not run_of().savings.checkpointing_reentrant
    assert run_of("4.57.6", group_by_length=True).shapes.group_by_length
    assert run_of("4.57.6").precision.weights_dtype == "fp32"


def test_a_scripts_own_keys_are_left_alone():
    subject = subject_of_text(
        json.dumps({**ARGUMENTS, "my_own_key": 1, "gradient_acumulation_steps": 1}), trainer="hf-trainer"
    )
    found = [one.key for one in check_subject(subject, Policy()).findings if one.rule == "unknown-argument"]
    assert found == []  # the argument itself is written
    del (values := dict(ARGUMENTS))["gradient_accumulation_steps"]
    subject = subject_of_text(json.dumps({**values, "gradient_acumulation_steps": 1}), trainer="hf-trainer")
    assert [one.key for one in check_subject(subject, Policy()).findings if one.rule == "unknown-argument"] == [
        "gradient_acumulation_steps"
    ]


@pytest.mark.parametrize(
    ("version", "written", "on"),
    [
        ("5.23.0", {"activation_checkpointing": True}, True),
        ("5.23.0", {"gradient_checkpointing": True}, True),
        ("5.23.0", {"activation_checkpointing": False, "gradient_checkpointing": True}, False),
        ("5.22.2", {"activation_checkpointing": True}, False),
    ],
)
def test_the_newer_name_of_checkpointing_counts_since_523(version, written, on):
    run = run_of(version, **written)
    assert (run.savings.gradient_checkpointing, run.savings.recompute) == (on, on)


def test_its_kwargs_have_a_newer_name_too():
    run = run_of("5.23.0", activation_checkpointing=True, activation_checkpointing_kwargs={"use_reentrant": True})
    assert run.savings.checkpointing_reentrant
    assert run.keys["checkpointing_reentrant"] == "activation_checkpointing_kwargs"


def test_a_fix_writes_the_name_that_counts():
    """Where the newer name turns it off, the older one would have no effect."""
    run = run_of("5.23.0", activation_checkpointing=False)
    (edit,) = trainer_named("hf-trainer").spell(run, CHECKPOINT.to(gradient_checkpointing=True)).edits
    assert edit.key == "activation_checkpointing"
    (edit,) = trainer_named("hf-trainer").spell(run_of(), CHECKPOINT.to(gradient_checkpointing=True)).edits
    assert edit.key == "gradient_checkpointing"
