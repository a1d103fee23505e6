"""What TRL itself got of each file, recorded by scripts/trl_values.py, against what we resolve: key by key, and the verdict.

Other people's files stay outside the tree; ours are in tests/data/trl.
"""

import json
from functools import cache
from pathlib import Path

import pytest

from opened import make_target, trainer_name
from vramwise.documents.document import parse_document
from vramwise.models.lora_targets import BY_MODEL
from vramwise.opening.subject import on_target
from vramwise.trainers.recognise import Foreign, recognise
from vramwise.trainers.registry import trainer_named
from vramwise.trainers.trl.kind import kind_of
from vramwise.trainers.trl.resolve.shapes import UNLIMITED
from vramwise.types import Severity
from vramwise.verbs.check import Policy, check_subject

DATA = Path(__file__).parent.parent / "data"
CORPUS = Path(__file__).parent.parent.parent.parent / "shared" / "corpus" / "trl"
RECORD = json.loads((DATA / "trl-1.16.0-values.json").read_text())
FILES = {path.name: path for folder in (CORPUS, DATA / "trl") if folder.is_dir() for path in folder.glob("*.yaml")}
TRAINING = [name for name in FILES if RECORD[name]["kind"]]
OTHERS = [name for name in FILES if not RECORD[name]["kind"]]
TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "auto": "bf16", None: "bf16"}


@cache
def opened(name):
    document = parse_document(name, FILES[name].read_bytes())
    target = make_target(trainer="trl", gpu="h100", versions=("trl==1.16.0",))
    return on_target(document, trainer_named("trl"), target)


@pytest.mark.parametrize("name", TRAINING)
def test_training_files_are_recognised_and_of_the_right_kind(name):
    document = opened(name).document
    assert trainer_name(document) == "trl"
    assert kind_of(document).name == RECORD[name]["kind"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_are_not_ours(name):
    document = parse_document(name, FILES[name].read_bytes())
    assert isinstance(recognise(document.values), Foreign)


def accepted():
    return [name for name in TRAINING if "values" in RECORD[name]]


@pytest.mark.parametrize("name", accepted())
def test_every_value_is_what_trl_got(name):
    run, values = opened(name).run, RECORD[name]["values"]
    kwargs = values["gradient_checkpointing_kwargs"] or {}
    evaluates = values["eval_strategy"] != "no"
    expected = {
        "base_model": values["model_name_or_path"],
        "micro_batch_size": values["per_device_train_batch_size"],
        "gradient_accumulation_steps": values["gradient_accumulation_steps"],
        "eval_batch_size": values["per_device_eval_batch_size"] if evaluates else None,
        "evaluates": evaluates,
        "eval_steps": values["eval_steps"] if values["eval_strategy"] == "steps" else None,
        "precision": "bf16" if values["bf16"] else "fp16" if values["fp16"] else "fp32",
        # TRL's command stops at the old name, which its parser leaves over: the run is what it will be once renamed
        "weights_dtype": TYPES[run.config.get("torch_dtype") or values["dtype"]],
        "gradient_checkpointing": bool(values["gradient_checkpointing"]),
        "checkpointing_reentrant": kwargs.get("use_reentrant", False),
        "optimizer": values["optim"],
        "max_grad_norm": values["max_grad_norm"],
        "attn_implementation": values["attn_implementation"] or "sdpa",
        "empty_cache_steps": values["torch_empty_cache_steps"],
        "torch_compile": values["torch_compile"],
        "liger": ("rope", "rms_norm", "glu_activation") if values["use_liger_kernel"] else (),
        "quantization": "4bit" if values["load_in_4bit"] else "8bit" if values["load_in_8bit"] else None,
        "group_by_length": values["train_sampling_strategy"] == "group_by_length",
        **length(values),
        **lora(values),
        **generation(values),
    }
    assert {field: run.value(field) for field in expected} == expected


def length(values):
    if "max_length" not in values:
        return {}
    found = {"sequence_len": values["max_length"] or UNLIMITED}
    if "packing" in values:
        found |= {"sample_packing": values["packing"], "pad_multiple": values["pad_to_multiple_of"] or 1}
        # a strategy that does not exist is refused later on: it counts as not written
        rows = "micro" if values["packing_strategy"] == "wrapped" else "one"
        found["packing_rows"] = rows if values["packing"] else "none"
    return found


def lora(values):
    if not values["use_peft"]:
        return {"adapter": None, "lora_r": None}
    targets = values["lora_target_modules"]
    return {
        "adapter": "qlora" if values["load_in_4bit"] else "lora",
        "lora_r": values["lora_r"],
        "lora_alpha": values["lora_alpha"],
        "lora_dropout": values["lora_dropout"],
        "lora_target_modules": (targets,) if isinstance(targets, str) else tuple(targets or (BY_MODEL,)),
        "lora_modules_to_save": tuple(values["lora_modules_to_save"] or ()),
        "nested_scales": values["use_bnb_nested_quant"] or not values["load_in_4bit"],
        "half_adapters": values["load_in_4bit"] or values["load_in_8bit"],
    }


def generation(values):
    if "num_generations" not in values:
        return {}
    share = values["vllm_gpu_memory_utilization"] if values["use_vllm"] else 0.0
    return {
        "completion_len": values["max_completion_length"],
        "rows_per_prompt": values["num_generations"],
        "generation_rows": values["generation_batch_size"],
        "engine": "beside" if values["use_vllm"] else "policy",
        "engine_share": share,
        "reference": "model" if values["beta"] else "none",
    }


@pytest.mark.parametrize("name", TRAINING)
def test_the_verdict_is_trls(name):
    """Where its parser or `accelerate launch` refuses, so do we; where they take the file, we have no error."""
    said = RECORD[name]
    report = check_subject(opened(name), Policy())
    errors = {found.rule for found in report.findings if found.severity is Severity.ERROR}
    refused = "refused" in said or not said["launches"]
    assert bool(errors) == refused, errors
    for key in said.get("unknown", ()):
        known = opened(name).trainer.key_unknown(key, opened(name).target.stack) is None
        told = any(found.key == key and found.rule == "unknown-argument" for found in report.findings)
        assert known or told, f"{key} is neither known nor told"


@pytest.mark.parametrize("name", TRAINING)
def test_the_rule_about_batch_size_is_never_asked(name):
    assert "batch-size-set" not in {found.rule for found in check_subject(opened(name), Policy()).findings}
