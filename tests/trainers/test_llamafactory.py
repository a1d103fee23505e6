"""LLaMA-Factory's files: what its own `get_train_args` made of each (recorded on a CPU) against what we make of it."""

import json
from functools import cache
from pathlib import Path

import pytest

from installed import needs_corpus
from vramwise import Options, check, predict, rules
from vramwise.opening.subject import open_subject
from vramwise.trainers.recognise import Foreign, recognise
from vramwise.trainers.registry import trainer_named
from vramwise.types import SETTINGS, Severity, TrainedBlocks
from vramwise.verbs.check import check_subject

DATA = Path(__file__).parent.parent / "data"
CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "llamafactory"
RECORDED = json.loads((DATA / "llamafactory-0.9.5-cases.json").read_text())
OF_FILES = json.loads((DATA / "llamafactory-0.9.5-corpus.json").read_text())
# How many cards → under which name the verdict of so many stands.
STARTS = {1: "one", 2: "torchrun"}
# Refused because of how it is started; the file is fine, and a warning says how to start it.
BY_START = "FORCE_TORCHRUN"
OPTIMIZERS = {
    "use_galore": "galore_adamw",
    "use_apollo": "apollo_adamw",
    "use_badam": "badam",  # followed by the optimizer that steps its blocks
    "use_adam_mini": "adam_mini",
    "use_muon": "muon",
}
BEYOND = {rule.id for rule in rules() if rule.beyond_trainer}


def verdict(recorded, entry, gpus):
    found = entry.get(STARTS[gpus], entry["one"])
    return found if "error" in found else {"values": {**recorded["usual"], **found["values"]}}


def options(gpus):
    return Options(**machine(gpus))


def machine(gpus):
    return {"gpu": "h100", "gpus": gpus, "versions": ("llamafactory==0.9.5",)}


@cache
def report(name, gpus):
    return check_subject(open_subject(RECORDED["cases"][name]["config"], options(gpus)))


def errors(found):
    return {one.rule for one in found.findings if one.severity is Severity.ERROR}


def expected(values):
    """Fields of the run, from the values that LLaMA-Factory's dataclasses hold."""
    stage, kind, packed = values["stage"], values["finetuning_type"], values["packing"]
    lora = kind == "lora"
    trains_tokens = stage in ("pt", "sft")
    one_row = values["flash_attn"] == "fa2" and (values["neat_packing"] or values["per_device_train_batch_size"] == 1)
    row = values["cutoff_len"] + (1 if packed and stage == "sft" and not one_row else 0)
    own = [name for key, name in OPTIMIZERS.items() if values[key]]
    half = "bf16" if values["bf16"] else "fp16" if values["fp16"] else None
    asked = values["gradient_checkpointing"]
    found = {
        "base_model": values["model_name_or_path"],
        "micro_batch_size": values["per_device_train_batch_size"],
        "gradient_accumulation_steps": values["gradient_accumulation_steps"],
        "sequence_len": row,
        "sample_packing": bool(packed) and trains_tokens,
        "evaluates": values["do_eval"],
        "eval_batch_size": values["per_device_eval_batch_size"] if values["do_eval"] else None,
        "eval_steps": values["eval_steps"] if values["eval_strategy"] == "steps" else None,
        "autocast": half is not None or values["fp8"],
        "recompute": asked or not values["disable_gradient_checkpointing"],
        "optimizer": f"badam {values['optim']}" if own == ["badam"] else own[0] if own else values["optim"],
        "max_grad_norm": values["max_grad_norm"],
        "torch_compile": values["torch_compile"],
        "empty_cache_steps": values["torch_empty_cache_steps"],
        "adapter": {"lora": "qlora" if values["quantization_bit"] == 4 else "lora", "oft": "oft"}.get(kind),
        "use_dora": values["use_dora"],
        "use_rslora": values["use_rslora"],
        "lora_modules_to_save": tuple(values["additional_target"] or ()),
        "nested_scales": values["double_quantization"],
        "rl": stage if stage in ("dpo", "kto", "ppo") else None,
        "trains_in_fp32": not (values["pure_bf16"] or values["use_badam"]),
    }
    if not asked:
        found["checkpointing_reentrant"] = values["use_reentrant_gc"]
    if half is not None and not values["fp8"]:
        found["precision"] = half
    if values["compute_dtype"] == "torch.bfloat16" and not values["fp8"]:
        found["precision"] = "bf16"
    if lora:
        found |= {"lora_r": values["lora_rank"], "lora_alpha": values["lora_alpha"]}
        found |= {"lora_dropout": values["lora_dropout"], "lora_target_linear": values["lora_target"] == ["all"]}
        found["lora_target_modules"] = () if values["lora_target"] == ["all"] else tuple(values["lora_target"])
    if stage == "dpo":
        found["reference"] = "none"
        if values["use_ref_model"]:
            found["reference"] = "adapter_off" if lora else "model"
    return found


def compared(run, values, *, without=()):
    wanted = expected(values)
    if run.sharding.kind == "zero3":  # keeps its own fp32 copies
        wanted.pop("trains_in_fp32")
    ours = {name: run.value(name) for name in wanted}
    return {name: (ours[name], wanted[name]) for name in wanted if ours[name] != wanted[name] and name not in without}


# Values that are taken without a look, and do something else than they say, or stop the run later.
LATER = {
    "bool-text": "a text is true to Python",
    "number-text": "texts are not converted",
    "rate-text": "",
    "r-stage": "stops when the stage is looked up",
    "attn-unknown": "stops when the model is prepared",
    "attn-fa3": "stops when the model is prepared",
    "int-float": "",
    "gptq-method": "quantises nothing",
}


@pytest.mark.parametrize("gpus", STARTS)
@pytest.mark.parametrize("name", RECORDED["cases"])
def test_the_same_verdict_and_the_same_values(name, gpus):
    theirs = verdict(RECORDED, RECORDED["cases"][name], gpus)
    found = report(name, gpus)
    if BY_START in theirs.get("error", ""):
        assert "deepspeed-without-torchrun" in {one.rule for one in found.findings}
    elif "error" in theirs:
        assert errors(found), theirs["error"]
    elif name not in LATER:
        assert errors(found) - BEYOND == set()
        without = {"dpo-ref": ("reference",), "hqq": ("adapter",), "badam-ratio": ("optimizer",)}.get(name, ())
        assert compared(found.run, theirs["values"], without=without) == {}


@pytest.mark.parametrize("name", [name for name, why in LATER.items() if why])
def test_what_is_taken_without_a_look_is_an_error_all_the_same(name):
    assert errors(report(name, 1))


FOREIGN = {
    "accelerate": "accelerate",
    "inference": "llamafactory-other",
    "ktransformers__accelerate": "accelerate",
    "megatron": "llamafactory-megatron",
    "merge_lora": "llamafactory-other",
    "v1": "llamafactory-v1",
}


def whose(name):
    return next((kind for start, kind in FOREIGN.items() if name.startswith(start)), "llamafactory")


@cache
def reports(gpus):
    return {Path(one.path).name: one for one in check([str(CORPUS)], **machine(gpus))}


@needs_corpus
@pytest.mark.parametrize("name", OF_FILES["files"])
def test_every_file_is_recognised(name):
    from vramwise.documents.document import parse_document

    found = recognise(parse_document(name, (CORPUS / name).read_bytes()).values)
    assert (found.kind if isinstance(found, Foreign) else found.name) == whose(name)


@needs_corpus
@pytest.mark.parametrize("gpus", STARTS)
def test_files_get_the_verdict_that_llamafactory_gives_them(gpus):
    ours = [name for name in OF_FILES["files"] if whose(name) == "llamafactory"]
    assert len(ours) == 34
    missed, false, wrong = [], [], {}
    for name in ours:
        theirs, found = verdict(OF_FILES, OF_FILES["files"][name], gpus), reports(gpus)[name]
        assert found.error is None
        if "error" in theirs:
            if BY_START not in theirs["error"] and not errors(found):
                missed.append((name, theirs["error"]))
            continue
        if errors(found) - BEYOND:
            false.append((name, errors(found) - BEYOND))
        if different := compared(found.run, theirs["values"]):
            wrong[name] = different
    assert missed == []
    assert false == []
    assert wrong == {}


def test_releases_name_what_they_install_with():
    releases = trainer_named("llamafactory").releases()
    assert next(iter(releases)) == "0.6.0"
    assert list(releases)[-2:] == ["0.9.4", "0.9.5"]
    assert releases["0.9.5"]["transformers"] == "5.6.0"
    assert releases["0.9.4"]["transformers"] == "4.57.1"


@pytest.mark.parametrize("name", ["plain", "full", "freeze", "dpo", "rm", "q4", "neat", "ds3", "ppo"])
def test_every_field_says_where_it_came_from(name):
    run = open_subject(RECORDED["cases"][name]["config"], options(1)).run
    settings = set(SETTINGS)
    assert settings - run.origins.keys() == set()


UNFOLLOWED = {
    "oft": set(),
    "a-full-use_galore": {"GaLore"},
    "a-full-use_apollo": {"APOLLO"},
    "a-full-use_badam": set(),
    "adam-mini": {"Adam-mini"},
    "hqq": {"hqq"},
    "ppo": {"rl: ppo"},
    "plain": set(),
    "rm": set(),
    "freeze": set(),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", UNFOLLOWED)
def test_what_no_prediction_follows_is_said_with_its_figures(name):
    prediction = predict(RECORDED["cases"][name]["config"], **machine(1)).prediction
    bounds = prediction.bounds
    assert set(bounds.names if bounds else ()) == UNFOLLOWED[name]


def test_images_are_said_to_be_left_out():
    run = open_subject(RECORDED["cases"]["plain"]["config"] | {"template": "qwen2_vl"}, options(1)).run
    assert [one.name for one in run.unfollowed] == ["multimodal data"]


def test_badam_trains_the_first_block_alone():
    config = RECORDED["cases"]["a-full-use_badam"]["config"]
    run = open_subject(config, options(1)).run
    assert run.adapter.trained_blocks == TrainedBlocks(count=-1)
    by_share = open_subject(config | {"badam_mode": "ratio"}, options(1)).run
    assert by_share.adapter.trained_blocks is None
    assert [one.name for one in by_share.unfollowed] == ["BAdam"]


def loss_peak(prediction):
    return max(phase.peak_allocated_bytes for phase in prediction.needs.phases if phase.phase == "loss")


def test_a_head_that_casts_its_outputs_holds_no_logits_in_half_precision():
    """Logits in bf16 go as soon as those in fp32 are there, and the loss and the outputs share these."""
    config = RECORDED["cases"]["plain"]["config"]
    plain, wide = (predict(config | more, **machine(1)).prediction for more in ({}, {"upcast_lmhead_output": True}))
    assert wide.run.kernels.head_in_fp32
    assert not wide.run.unfollowed
    assert loss_peak(wide) < 0.9 * loss_peak(plain)


def test_oft_rotates_blocks_of_columns():
    config = RECORDED["cases"]["oft"]["config"]
    run = open_subject(config, options(1)).run
    assert (run.adapter.kind, run.adapter.lora_r) == ("oft", 32)
    wider = open_subject(config | {"oft_block_size": 64}, options(1)).run
    assert wider.adapter.lora_r == 64
    by_rank = open_subject(config | {"oft_rank": 8}, options(1)).run
    assert [one.name for one in by_rank.unfollowed] == ["oft_rank"]


@pytest.mark.parametrize(
    ("release", "settings"), [("0.9.2", ""), ("0.9.3", "expandable_segments:True"), (None, "expandable_segments:True")]
)
def test_the_command_sets_the_allocator_since_0_9_3(release, settings):
    config = {"model_name_or_path": "Qwen/Qwen3-4B", "stage": "sft", "finetuning_type": "lora", "dataset": "identity"}
    versions = () if release is None else (f"llamafactory=={release}",)
    run = open_subject(config, Options(gpu="h100", gpus=2, versions=versions, trainer="llamafactory")).run
    assert run.allocator.settings == settings
