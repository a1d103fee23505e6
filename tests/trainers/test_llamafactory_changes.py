"""Changes in LLaMA-Factory's words: what is spelt, read again, is what was meant."""

from dataclasses import replace

import pytest

from opened import make_target, resolve
from vramwise.documents.document import parse_document
from vramwise.documents.edit import apply_edits
from vramwise.trainers.registry import trainer_named
from vramwise.types import Change
from vramwise.variants import changes
from vramwise.variants.axes import AXES

LORA = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\nbf16: true\n"
FULL = LORA.replace("lora", "full")


def opened(text, **words):
    document = parse_document("config.yml", text.encode())
    return document, resolve(document, make_target(trainer="llamafactory", **words), "llamafactory")


def applied(text, wanted, **words):
    document, run = opened(text, **words)
    spelling = trainer_named("llamafactory").spell(run, wanted)
    assert spelling is not None
    changed = apply_edits(document, spelling.edits)
    return changed.text, resolve(changed, make_target(trainer="llamafactory", **words), "llamafactory")


def one(**fields):
    return Change(id="test", title="", effect="same", why="", fields=fields)


CASES = {
    "micro": (LORA, {"micro_batch_size": 2, "gradient_accumulation_steps": 4}),
    "eval": (f"{LORA}val_size: 0.1\neval_strategy: steps\n", {"eval_batch_size": 1}),
    "checkpointing off": (LORA, {"gradient_checkpointing": False}),
    "checkpointing off twice": (f"{LORA}gradient_checkpointing: true\n", {"gradient_checkpointing": False}),
    "checkpointing on": (f"{LORA}disable_gradient_checkpointing: true\n", {"gradient_checkpointing": True}),
    "not reentrant": (LORA, {"checkpointing_reentrant": False}),
    "not reentrant by kwargs": (f"{LORA}gradient_checkpointing: true\n", {"checkpointing_reentrant": False}),
    "liger": (LORA, {"loss_kernel": "liger_fused_linear"}),
    "no liger": (f"{LORA}enable_liger_kernel: true\n", {"loss_kernel": "stock"}),
    "flash": (LORA, {"attn_implementation": "flash_attention_2"}),
    "sdpa": (f"{LORA}flash_attn: disabled\n", {"attn_implementation": "sdpa"}),
    "eager": (LORA, {"attn_implementation": "eager"}),
    "offloading": (LORA, {"activation_offloading": "hidden_states"}),
    "no offloading": (f"{LORA}use_unsloth_gc: true\n", {"activation_offloading": "off"}),
    "length": (LORA, {"sequence_len": 1024}),
    "packed length": (f"{LORA}stage: pt\npacking: true\n".replace("stage: sft\n", ""), {"sequence_len": 1023}),
    "4 bits": (LORA, {"adapter": "qlora", "quantization": "4bit"}),
    "8 bits": (LORA, {"adapter": "lora", "quantization": "8bit"}),
    "lora": (FULL, {"adapter": "lora"}),
    "rank": (LORA, {"lora_r": 64}),
    "packing": (LORA, {"sample_packing": True}),
    "optimizer": (LORA, {"optimizer": "adamw_bnb_8bit"}),
    "compile": (LORA, {"torch_compile": True}),
    "fp16": (LORA, {"precision": "fp16"}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_spelt_is_what_was_meant(name):
    text, fields = CASES[name]
    _, run = applied(text, one(**fields))
    assert {key: run.value(key) for key in fields} == fields


def test_samples_are_kept_apart_by_neat_packing():
    text = f"{LORA}packing: true\n"
    wanted = changes.separate_samples(opened(text)[1])
    changed, run = applied(text, wanted)
    assert "neat_packing: true" in changed
    assert run.shapes.samples_apart
    assert run.shapes.packing_rows == "micro"


@pytest.mark.parametrize("text", [LORA, FULL])
def test_fsdp_is_written_into_the_file_and_loads_into_host_memory(text):
    changed, run = applied(text, one(sharding="fsdp2"), gpus=2)
    assert (run.sharding.kind, run.loading.loads_through, run.savings.checkpointing_reentrant) == (
        "fsdp2",
        "host",
        False,
    )
    assert not [found.name for found in run.unfollowed]
    assert "fsdp: full_shard auto_wrap\n" in changed
    _, bare = opened(changed.replace("low_cpu_mem_usage: false\n", "").replace("use_reentrant_gc: false\n", ""), gpus=2)
    assert (bare.loading.loads_through, bare.savings.checkpointing_reentrant) == ("device", True)
    assert bare.unfollowed == ()
    assert (bare.loading.loads_through, bare.loading.shards_by_tensor) == ("device", False)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_is_written_into_the_file(stage):
    _, run = applied(FULL, one(sharding=f"zero{stage}"), gpus=2)
    assert run.sharding.kind == f"zero{stage}"
    assert (run.sharding.offload_params, run.sharding.offload_optimizer) == (False, False)


SEARCHED = {
    "lora": LORA,
    "full": FULL,
    "evaluated": f"{LORA}val_size: 0.1\neval_strategy: steps\n",
    "fused": f"{LORA}enable_liger_kernel: true\n",
    "kept": f"{LORA}disable_gradient_checkpointing: true\n",
    "pairs": LORA.replace("sft", "dpo"),
    "8 bits": f"{LORA}quantization_bit: 8\n",
    "eager": f"{LORA}flash_attn: disabled\n",
}


@pytest.mark.parametrize("name", SEARCHED)
@pytest.mark.parametrize("gpus", [1, 2])
def test_every_choice_of_a_search_is_what_was_meant_or_has_no_word(name, gpus):
    words = {"gpu": "h100", "gpus": gpus}
    run = replace(opened(SEARCHED[name], **words)[1], model_type="qwen3")
    spelt = 0
    for wanted in (change for axis in AXES for change in axis.choices(run)):
        spelling = trainer_named("llamafactory").spell(run, wanted)
        if spelling is None or not spelling.edits:
            continue
        spelt += 1
        _, found = applied(SEARCHED[name], wanted, **words)
        assert {key: found.value(key) for key in wanted.fields} == dict(wanted.fields)
    assert spelt >= 3


NOT_SPELT = {
    "no key pads rows": (LORA, {"pad_to_sequence_len": True}),
    "streams are not offloaded": (LORA, {"activation_offloading": "stream"}),
    "pairs need logits": (LORA.replace("sft", "dpo"), {"loss_kernel": "liger_fused_linear"}),
    "a weighted loss needs logits": (f"{LORA}use_dft_loss: true\n", {"loss_kernel": "liger_fused_linear"}),
    "PiSSA on few bits": (f"{LORA}pissa_init: true\n", {"adapter": "qlora", "quantization": "4bit"}),
    "GaLore has its own": (f"{FULL}use_galore: true\n", {"optimizer": "adamw_bnb_8bit"}),
    "one row is flash attention's": (
        f"{LORA}neat_packing: true\nflash_attn: fa2\nper_device_train_batch_size: 1\n",
        {"attn_implementation": "sdpa"},
    ),
    "FSDP 1": (LORA, {"sharding": "fsdp1"}),
    "FSDP over 4 bits": (LORA + "quantization_bit: 4\n", {"sharding": "fsdp2"}),
}


@pytest.mark.parametrize("name", NOT_SPELT)
def test_what_has_no_word_is_not_spelt(name):
    text, fields = NOT_SPELT[name]
    assert trainer_named("llamafactory").spell(opened(text)[1], one(**fields)) is None


def test_the_allocator_is_a_shell_line():
    run = opened(LORA)[1]
    spelling = trainer_named("llamafactory").spell(run, changes.expandable_segments(run))
    assert spelling.edits == ()
    assert spelling.command.startswith("export PYTORCH_")


@pytest.mark.parametrize(
    ("words", "text", "expandable"),
    [
        ({}, LORA, False),
        ({"gpus": 2}, LORA, True),
        ({"gpus": 2, "launcher": "module"}, LORA, False),
        ({}, f"{LORA}deepspeed: examples/deepspeed/ds_z2_config.json\n", True),
        ({"gpus": 2, "env": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}}, LORA, True),
    ],
)
def test_expandable_segments_come_with_torchrun_alone(words, text, expandable):
    run = opened(text, **words)[1]
    assert ("expandable_segments:True" in run.allocator.settings) is expandable


def test_zero_3_is_that_of_the_newest_deepspeed_it_supports():
    """0.16.9 frees frozen weights that are recomputed; newer ones hold them until backward ends."""
    zero = opened("deepspeed: examples/deepspeed/ds_z3_config.json\n", gpus=8)[1].sharding.zero
    assert (zero.release, zero.holds_recomputed) == ((0, 16, 9), False)
