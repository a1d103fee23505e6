"""What older releases of TRL, transformers and PEFT decide, each read in its wheel."""

import pytest

from opened import make_target, subject_of_text
from vramwise.opening.subject import on_target
from vramwise.trainers.registry import trainer_named
from vramwise.trainers.scripts.reading import Reading, read_script
from vramwise.variants.changes.base import kind

QLORA = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: d\nuse_peft: true\nload_in_4bit: true\nbf16: true\n"
NOTEBOOK = """\
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments
from trl import SFTTrainer
four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float16)
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", quantization_config=four)
args = TrainingArguments("out", per_device_train_batch_size=4)
SFTTrainer(model=model, peft_config=LoraConfig(r=64), max_seq_length=None, args=args, packing=False).train()
"""


def run(text, *versions, trainer="trl"):
    target = make_target(trainer=trainer, versions=versions, gpu="h100")
    return subject_of_text(text, target, trainer=trainer).run


def script(text, *versions):
    document = read_script("train.py", text.encode(), Reading())
    trainer = trainer_named(f"{document.script.trainer}:{document.script.kind}")
    return on_target(document, trainer, make_target(trainer="trl", versions=versions, gpu="t4"))


def test_a_notebook_of_trl_0_4_7():
    found = script(NOTEBOOK, "trl==0.4.7", "transformers==4.31.0", "peft==0.4.0").run
    assert found.shapes.sequence_len == 1024
    assert found.savings.recompute
    assert found.savings.checkpointing_reentrant  # TRL's preparation turns it on
    assert found.loading.quantised_base_prepared == "all"
    assert found.loading.upcasts_stay
    assert found.precision.weights_dtype == "fp16"  # of what bitsandbytes leaves
    assert not found.adapter.half_adapters
    later = script(NOTEBOOK, "trl==0.7.4").run
    assert not later.savings.recompute


@pytest.mark.parametrize(
    ("release", "prepared", "half"),
    [("0.7.1", "all", False), ("0.12.2", "but embeddings", False), ("0.27.2", "no", True), ("1.16.0", "no", True)],
)
def test_what_trl_casts_of_a_quantised_base(release, prepared, half):
    found = run(QLORA, f"trl=={release}")
    assert (found.loading.quantised_base_prepared, found.adapter.half_adapters) == (prepared, half)


@pytest.mark.parametrize(
    ("release", "loss"),
    [("0.12.2", "stock"), ("1.6.0", "stock"), ("1.8.0", "fp32_slices"), ("1.13.0", "slices"), ("1.16.0", "tiled")],
)
def test_the_loss_goes_by_the_release(release, loss):
    assert run(QLORA, f"trl=={release}").kernels.loss_kernel == loss


@pytest.mark.parametrize(
    ("release", "way", "reference"),
    [
        ("0.14.0", "whole", "bf16"),
        ("0.19.1", "selected", "bf16"),
        ("1.13.0", "selected", "bf16"),
        ("1.14.1", "fused", "bf16"),
        ("1.16.0", "tiled", "bf16"),
    ],
)
def test_log_probabilities_go_by_the_release(release, way, reference):
    text = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: d\nbeta: 0.1\ntorch_dtype: bfloat16\n"
    text = text.replace("torch_", "") if release >= "0.23" else text
    found = run(text, f"trl=={release}", trainer="trl:dpo")
    assert (found.objective.log_probs, found.objective.reference_dtype) == (way, reference)


@pytest.mark.parametrize(
    ("release", "widened", "shifted"), [("4.44.2", True, True), ("4.46.3", False, True), ("4.57.6", False, False)]
)
def test_the_plain_loss_goes_by_transformers(release, widened, shifted):
    found = run(QLORA, "trl==0.12.2", f"transformers=={release}").kernels
    assert (found.head_in_fp32, found.shifts_logits) == (widened, shifted)


def test_copies_of_the_logits_are_counted_as_measured():
    """On a CPU: 12, 14 and 10 bytes per logit in forward (bench/results/recipes_2024.md)."""

    def at_loss(release):
        text = QLORA + "packing: true\nmax_seq_length: 512\nper_device_train_batch_size: 2\n"
        target = make_target(trainer="trl", versions=("trl==0.12.2", f"transformers=={release}"), gpu="h100")
        needs = subject_of_text(text, target, trainer="trl").prediction().needs
        return max(peak.peak_allocated_bytes for peak in needs.phases if peak.phase == "loss")

    logits = 2 * 512 * 151_936
    old, middle, new = map(at_loss, ("4.44.2", "4.46.3", "4.57.6"))
    assert (old - new) / logits == pytest.approx(2, abs=0.1)
    assert (middle - new) / logits == pytest.approx(4, abs=0.1)


def test_adapters_have_the_type_of_their_base_before_peft_0_12():
    text = "model_name_or_path: m\ndataset_name: d\nuse_peft: true\ntorch_dtype: bfloat16\n"
    for release, as_base in (("0.11.1", True), ("0.13.2", False)):
        assert run(text, "trl==0.12.2", f"peft=={release}").adapter.adapters_as_base is as_base


def test_experts_of_transformers_4_are_quantised_like_the_rest():
    text = QLORA.replace("Qwen3-0.6B", "Qwen3-30B-A3B")
    four = run(text, "trl==0.12.2")
    assert four.loading.expert_quantization == "4bit"
    assert any(one.experts_only for one in four.value("unfollowed"))
    newest = run(text, "trl==1.16.0")
    assert newest.loading.expert_quantization is None
    assert not newest.value("unfollowed")


def test_fsdp_2_reduces_at_every_micro_step_before_accelerate_1_11():
    text = QLORA.replace("load_in_4bit: true\n", "") + "fsdp: full_shard\nfsdp_config:\n  fsdp_version: 2\n"
    for release, each in (("1.10.1", True), ("1.11.0", False)):
        target = make_target(trainer="trl", versions=("trl==0.19.1", f"accelerate=={release}"), gpu="h100", gpus=2)
        assert subject_of_text(text, target, trainer="trl").run.sharding.sync_each_batch is each


def test_no_dtype_is_fp32_before_transformers_5():
    text = "model_name_or_path: m\ndataset_name: d\n"
    assert run(f"{text}torch_dtype: null\n", "trl==0.12.2").precision.weights_dtype == "fp32"
    assert run(f"{text}dtype: null\n", "trl==1.16.0").precision.weights_dtype == "bf16"
    assert run(f"{text}dtype: null\n", "trl==0.26.2", "transformers==4.57.6").precision.weights_dtype == "fp32"


@pytest.mark.parametrize(
    ("release", "transformers", "liger", "length"),
    [
        ("0.9.6", "4.31.0", None, "max_seq_length"),
        ("0.11.4", "4.44.2", "use_liger", "max_seq_length"),
        ("0.20.0", "4.53.3", "use_liger_kernel", "max_length"),
    ],
)
def test_changes_are_written_with_the_keys_of_the_release(release, transformers, liger, length):
    text = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: d\nuse_peft: true\ntorch_dtype: bfloat16\nbf16: true\n"
    target = make_target(trainer="trl", versions=(f"trl=={release}", f"transformers=={transformers}"))
    found = subject_of_text(text, target, "trl")

    def key(change):
        spelt = found.trainer.spell(found.run, change)
        return None if spelt is None else spelt.edits[0].key

    assert key(kind("fuse-loss").to(loss_kernel="liger_fused_linear")) == liger
    assert key(kind("shorten-rows").to(sequence_len=512)) == length
