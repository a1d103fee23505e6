"""TrainingArguments as data, and the pieces of resolving that trainers on them share."""

import pytest

from opened import make_target
from vramwise import check
from vramwise.documents.document import parse_document
from vramwise.trainers.arguments import (
    Arguments,
    Vocabulary,
    arguments_config,
    resolve_eval,
    side_files,
    training_arguments,
)
from vramwise.trainers.arguments.resolve.accelerate import read_accelerate
from vramwise.trainers.arguments.vocabulary import UNUSABLE, argument_versions
from vramwise.trainers.fields import Fields
from vramwise.trainers.releases import nearest


def words(version="5.22.2"):
    return training_arguments(make_target(trainer="hf-trainer", versions=(f"transformers=={version}",)).stack)


def test_every_version_has_the_keys_that_decide_memory():
    for version in argument_versions():
        known = words(version)
        for key in ("per_device_train_batch_size", "per_device_eval_batch_size", "optim", "gradient_checkpointing"):
            assert known.type_of(key), (version, key)
        assert known.default("per_device_eval_batch_size") == 8
    for version, default in (
        ("4.45.2", "adamw_torch"),
        ("4.57.6", "adamw_torch_fused"),
        ("5.23.0", "adamw_torch_fused"),
    ):
        assert words(version).default("optim") == default


def test_what_a_key_means_for_memory_is_told_of_keys_that_exist():
    for version in argument_versions():
        known = words(version)
        told = [key for key in sorted(known.keys()) if known.meaning(key)]
        assert len(told) > 30
        assert known.meaning("run_name") is None


def test_versions_differ():
    assert words("4.57.6").default("group_by_length") is False
    assert "group_by_length" not in words("5.6.0")
    assert "warmup_ratio" in words("5.6.0")
    assert "warmup_ratio" in words("5.14.1")
    assert "warmup_ratio" not in words("5.15.0")
    assert "batch_rebalance" not in str(words("5.16.1").type_of("train_sampling_strategy"))
    assert "batch_rebalance" in str(words("5.17.0").type_of("train_sampling_strategy"))
    assert nearest("5.21.7", argument_versions()) == "5.21.1"
    assert nearest("4.0.0", argument_versions()) == argument_versions()[0]


@pytest.mark.parametrize(
    ("key", "value", "held"),
    [
        ("learning_rate", "2e-5", 2e-5),
        ("per_device_train_batch_size", "4", 4),
        ("bf16", "yes", True),
        ("eval_steps", "none", None),
        ("report_to", "none", "none"),
        ("deepspeed", "zero.json", "zero.json"),
    ],
)
def test_texts_become_what_the_field_holds(key, value, held):
    assert words().check(key, value) is None
    assert words().held(key, value) == held


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("per_device_train_batch_size", "many"),
        ("gradient_checkpointing", "off"),
        ("gradient_checkpointing", "None"),
        ("liger_kernel_config", "{}"),
        ("eval_strategy", False),
        ("eval_strategy", None),
        ("optim", "adamw_turbo"),
        ("logging_steps", None),
        ("output_dir", 3),
    ],
)
def test_what_the_parser_stops_at_is_refused(key, value):
    assert key in words().check(key, value)
    assert words().held(key, value) is UNUSABLE


@pytest.mark.parametrize(
    ("key", "value", "grave"),
    [
        ("per_device_train_batch_size", None, True),
        ("per_device_train_batch_size", [1], True),
        ("gradient_accumulation_steps", 2.5, True),
        ("gradient_checkpointing_kwargs", [1], True),
        ("save_total_limit", 2.5, False),
        ("bf16", [True], False),
    ],
)
def test_what_the_parser_takes_although_it_is_of_another_type(key, value, grave):
    assert words().check(key, value) is None
    assert words().misread(key, value).grave is grave


def test_switches_go_by_what_python_takes_for_true():
    assert words().held("bf16", [True]) is True
    assert words().held("bf16", "false") is False
    plain = words().unconverted()
    assert plain.held("bf16", "false") is True
    assert plain.misread("bf16", "false").grave
    assert plain.misread("bf16", "true") is None
    assert "quotes" in plain.misread("per_device_train_batch_size", "4").sentence


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gradient_checkpointing", None),
        ("run_name", 7),
        ("label_names", "labels"),
        ("fsdp", True),
        ("fsdp", "full_shard"),
    ],
)
def test_what_works_all_the_same_is_taken(key, value):
    assert words().check(key, value) is None


def arguments(text, vocabulary=None):
    known = vocabulary or words()
    config = arguments_config(parse_document("x.yml", text.encode()), known)
    return Arguments(Fields(config, "nobody"), known)


def test_an_empty_value_is_none_and_not_the_default():
    known = words() | Vocabulary({"keys": {"max_length": ["int?", 1024]}})
    assert arguments("max_length: null\n", known).value("max_length") is None
    assert arguments("bf16: true\n", known).value("max_length") == 1024


def test_mappings_may_be_texts_and_blocks_may_carry_a_prefix():
    args = arguments("gradient_checkpointing_kwargs: '{\"use_reentrant\": true}'\nfsdp_config:\n  fsdp_version: 1\n")
    assert args.value("gradient_checkpointing_kwargs") == {"use_reentrant": True}
    assert args.fields.config.get("fsdp_config.version") == 1
    assert args.fields.config.place("fsdp_config.version") is not None


def evaluated(text):
    args = arguments(text)
    args.values.update(sequence_len=512, sample_packing=False)
    resolve_eval(args)
    return args


def test_an_eval_batch_is_8_where_nothing_is_said():
    args = evaluated("per_device_train_batch_size: 1\neval_strategy: steps\nlogging_steps: 20\n")
    assert args.values["eval_batch_size"] == 8
    assert args.fields.origins["eval_batch_size"].kind == "default"
    assert args.values["eval_steps"] == 20
    assert evaluated("per_device_train_batch_size: 1\n").values["eval_batch_size"] is None


def test_side_files_are_named_under_several_keys():
    values = {
        "deepspeed": "ds.json",
        "fsdp_config": {"version": 2},
        "accelerate_config": "a.yaml",
        "config_file": "zero3",
    }
    assert side_files(values, "accelerate_config", "config_file") == ("ds.json", "a.yaml")


def test_accelerates_file_in_arguments_words():
    found = read_accelerate(
        {
            "distributed_type": "DEEPSPEED",
            "mixed_precision": "bf16",
            "deepspeed_config": {"zero_stage": 3, "offload_optimizer_device": "cpu", "offload_param_device": "none"},
            "parallelism_config": {"parallelism_config_cp_size": 2},
        },
        key="accelerate_config",
        name="x.yaml",
    )
    assert found.deepspeed == {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}
    assert (found.mixed_precision, found.context_parallel, found.fsdp) == ("bf16", 2, None)
    fsdp = read_accelerate(
        {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2, "fsdp_offload_params": True}}, key="k", name="n"
    )
    assert fsdp.fsdp == {"version": 2, "offload_params": True, "cpu_ram_efficient_loading": "true"}
    assert read_accelerate(None, key="k", name="n").missing


def test_another_trainers_key_is_found_where_it_stands(tmp_path):
    text = "model_name_or_path: Qwen/Qwen3-0.6B\nper_device_train_batch_size: 8\nmicro_batch_size: 2\nmax_length: 512\n"
    (tmp_path / "trl.yml").write_text(text + "use_peft: true\ndataset_name: a/b\n")
    (report,) = check([str(tmp_path / "trl.yml")])
    found = [finding for finding in report.findings if finding.rule == "unknown-argument"]
    assert [(finding.key, finding.place.line) for finding in found] == [("micro_batch_size", 3)]
