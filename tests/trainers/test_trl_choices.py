"""Everything that a search may vary about a run of TRL: what is written is what is meant, and nothing is refused by it."""

import pytest

from opened import make_target, subject_of_text
from vramwise.documents.edit import apply_edits
from vramwise.types import Severity
from vramwise.variants.axes import ALLOW, opened
from vramwise.verbs.check import Policy, check_subject

BASE = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d\nmax_steps: 10\n"
TEXTS = {
    "defaults": "",
    "lora": "use_peft: true\nlora_r: 16\nlora_alpha: 32\nper_device_train_batch_size: 4\neval_strategy: steps\n",
    "qlora": "use_peft: true\nload_in_4bit: true\ndtype: bfloat16\nattn_implementation: eager\noptim: paged_adamw_8bit\n",
    "packed": "packing: true\nmax_length: 2048\ngradient_checkpointing: false\nuse_liger_kernel: true\n",
    "padded": "pad_to_multiple_of: 1024\nper_device_train_batch_size: 2\nactivation_offloading: true\n",
    "dpo": "ld_alpha: 1.0\nuse_peft: true\ndtype: bfloat16\nmax_length: 1024\n",
    "grpo": "reward_funcs: [a]\nnum_generations: 4\nper_device_train_batch_size: 4\n",
}


def errors(subject):
    return {found.rule for found in check_subject(subject, Policy()).findings if found.severity is Severity.ERROR}


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_written_is_what_is_meant(name):
    before = subject_of_text(BASE + TEXTS[name], make_target(trainer="trl", gpu="h100"), trainer="trl")
    already, written = errors(before), set()
    for axis in opened(ALLOW):
        for change in axis.choices(before.run):
            spelt = before.trainer.spell(before.run, change)
            if spelt is None:
                continue
            after = before.with_document(apply_edits(before.document, spelt.edits))
            held = {field: after.run.value(field) for field in change.fields}
            assert held == dict(change.fields), change.id
            assert errors(after) <= already, change.id
            assert after.run.batch.effective_batch_size == before.run.batch.effective_batch_size, change.id
            written.add(axis.name)
    assert {"allocator", "batches", "checkpointing", "optimizer"} <= written


def test_what_trl_has_a_word_for_is_offered():
    run = subject_of_text(BASE + TEXTS["lora"], make_target(trainer="trl", gpu="h100"), trainer="trl")
    ids = {
        change.id
        for axis in opened(ALLOW)
        for change in axis.choices(run.run)
        if run.trainer.spell(run.run, change) is not None
    }
    assert {"load-in-bf16", "quantize-base", "lower-rank", "expandable-segments", "smaller-micro-batch"} <= ids


@pytest.mark.parametrize("sharding", ["fsdp2", "zero1", "zero2", "zero3"])
def test_what_spreads_a_run_is_one_of_trls_own_accelerate_files(sharding):
    target = make_target(trainer="trl", gpu="h100", gpus=4)
    before = subject_of_text(BASE, target, trainer="trl")
    [change] = [
        one for axis in opened(ALLOW) for one in axis.choices(before.run) if one.fields.get("sharding") == sharding
    ]
    spelt = before.trainer.spell(before.run, change)
    after = before.with_document(apply_edits(before.document, spelt.edits))
    assert after.document.values.items() >= {"accelerate_config": sharding, "num_processes": 4}.items()
    assert (after.run.sharding.kind, after.run.loading.loads_through) == (sharding, "host")
    assert errors(after) == errors(before)
    assert before.trainer.spell(after.run, change) is None  # there is one already
