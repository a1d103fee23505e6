"""Where a 4-bit base is while it is loaded for FSDP or ZeRO 3, by the release of transformers."""

import json
from dataclasses import replace

import pytest

from vramwise.opening.options import Command, Options
from vramwise.opening.subject import open_subject
from vramwise.render.outward import unstyle
from vramwise.render.prediction_text import render_prediction
from vramwise.units import gib
from vramwise.variants.capacity import on_card
from vramwise.variants.prediction import predict_run

SCRIPT = """
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from peft import LoraConfig
from trl import SFTTrainer, SFTConfig

model = AutoModelForCausalLM.from_pretrained(
    "meta-llama/Llama-2-70b-hf",
    dtype=torch.bfloat16,
    quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16),
)
args = SFTConfig("out", per_device_train_batch_size=1, bf16=True, packing=True, max_length=1024)
SFTTrainer(model=model, args=args, peft_config=LoraConfig(r=8, target_modules="all-linear")).train()
"""
FSDP = {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2, "fsdp_offload_params": True}}
SHARDED = {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2}}
ZERO = {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3}}


def predicted(folder, monkeypatch, launcher, *versions):
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "launch.yaml").write_text(json.dumps(launcher))
    line = "accelerate launch --config_file launch.yaml --num_processes 2 train.py"
    subject = open_subject(Command(line), Options(gpu="2xrtx-4090", versions=versions))
    return predict_run(subject.run, subject.model)


@pytest.mark.parametrize("launcher", [FSDP, ZERO])
def test_transformers_4_moves_each_weight_on(tmp_path, monkeypatch, launcher):
    """Since 5.0 the whole base stays on each card until it is sharded."""
    old = predicted(tmp_path, monkeypatch, launcher, "transformers==4.57.1")
    new = predicted(tmp_path, monkeypatch, launcher, "transformers==5.14.0")
    assert (old.run.loading.loads_through, new.run.loading.loads_through) == ("host", "device")
    loaded = [max(p.peak_allocated_bytes for p in one.needs.phases if not p.step) for one in (old, new)]
    assert loaded[1] - loaded[0] > 12 * 2**30


def test_a_release_that_nobody_stated_leaves_it_open(tmp_path, monkeypatch):
    """What decides is said, with the range; a stated release decides."""
    unsaid = predicted(tmp_path, monkeypatch, FSDP)
    assert unsaid.verdict().kind == "may_fit"
    assert "transformers 4" in unsaid.bounds.why
    assert predicted(tmp_path, monkeypatch, FSDP, "transformers==5.14.0").verdict().kind == "does_not_fit"
    assert predicted(tmp_path, monkeypatch, FSDP, "transformers==4.46.3").verdict().kind in ("fits", "tight")


def test_what_does_not_fit_either_way_is_judged_by_the_lower_end(tmp_path, monkeypatch):
    unsaid = predicted(tmp_path, monkeypatch, FSDP)
    room = unsaid.least_bytes - 3 * 2**30
    card = replace(unsaid.gpu, memory_bytes=room + unsaid.needs.outside_bytes)
    short = on_card(unsaid, card)
    assert (short.verdict().kind, short.verdict().short_bytes) == ("does_not_fit", 3 * 2**30)
    lines = [unstyle(line) for line in render_prediction(short)]
    assert "3.0 GiB short" in lines[0]
    assert f"needs at least {gib(unsaid.least_bytes)} reserved" in lines[0]
    assert not any("while loading" in line for line in lines)


def test_a_file_of_accelerate_without_the_key_loads_on_one_rank(tmp_path, monkeypatch):
    """`accelerate launch` takes cpu_ram_efficient_loading to be on."""
    run = predicted(tmp_path, monkeypatch, FSDP, "transformers==4.46.3").run
    assert run.loading.shards_by_tensor
    off = {"distributed_type": "FSDP", "fsdp_config": {"fsdp_cpu_ram_efficient_loading": False}}
    assert predicted(tmp_path, monkeypatch, off, "transformers==4.46.3").run.loading.loads_through == "device"


def test_deepspeed_that_nobody_stated_leaves_lora_under_zero_3_open(tmp_path, monkeypatch):
    """Since 0.19.3 frozen weights that are recomputed stay gathered until backward ends."""
    monkeypatch.setitem(ZERO, "deepspeed_config", {"zero_stage": 3})
    plain = SCRIPT.replace("load_in_4bit=True, ", "")
    monkeypatch.setitem(globals(), "SCRIPT", plain.replace("2-70b", "2-13b"))
    unsaid = predicted(tmp_path, monkeypatch, ZERO, "transformers==5.14.0")
    said = [
        predicted(tmp_path, monkeypatch, ZERO, "transformers==5.14.0", f"deepspeed=={release}").needs
        for release in ("0.18.9", "0.19.8")
    ]
    least, most = [one.highest_reserved_bytes for one in said]
    assert unsaid.least_bytes <= least < most == unsaid.most_bytes
    assert unsaid.verdict().kind == "may_fit"


def test_fsdp_2_leaves_a_base_of_bytes_whole(tmp_path, monkeypatch):
    """accelerate since 1.14 excludes 4-bit weights that are stored as bytes, bitsandbytes' own default, from FSDP 2."""
    cut = predicted(tmp_path, monkeypatch, SHARDED, "transformers==5.14.0")
    monkeypatch.setitem(globals(), "SCRIPT", SCRIPT.replace(", bnb_4bit_quant_storage=torch.bfloat16", ""))
    whole = predicted(tmp_path, monkeypatch, SHARDED, "transformers==5.14.0")
    assert (cut.run.loading.packed_as_bytes, whole.run.loading.packed_as_bytes) == (False, True)
    held = [one.needs.breakdown_bytes["weights"] for one in (cut, whole)]
    assert held[1] - held[0] == pytest.approx(0.25 * 68.7e9, rel=0.1)  # half of 4 bits each
