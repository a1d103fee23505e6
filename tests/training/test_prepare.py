"""Before the first step: what stops a run, and what is decided. No torch needed."""

import os
import sys
from pathlib import Path

import pytest
import yaml

from opened import make_target
from tiny_runs import make_folder, prepared, write_config
from vramwise.errors import VramwiseError
from vramwise.training.parent.decide import decide_allocator
from vramwise.training.parent.hosted_engines import write_config as write_axolotl_config
from vramwise.training.parent.run import remedies
from vramwise.training.plan import TrainPlan


@pytest.fixture(autouse=True)
def _everything_installed(monkeypatch):
    monkeypatch.setattr("vramwise.training.parent.extras.find_spec", lambda name: object())


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path)


@pytest.mark.parametrize(
    ("torch", "variable"),
    [("2.4", "PYTORCH_CUDA_ALLOC_CONF"), ("2.9", "PYTORCH_CUDA_ALLOC_CONF"), ("2.10", "PYTORCH_ALLOC_CONF")],
)
def test_the_allocator_variable_is_the_one_this_torch_reads(torch, variable):
    environment, settings, _ = decide_allocator(make_target(torch=torch, env={}, look_around=False))
    assert environment == {variable: "expandable_segments:True"}
    assert settings == "expandable_segments:True"


def test_the_users_own_allocator_variable_stays():
    own = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}
    environment, settings, why = decide_allocator(make_target(torch="2.13", env=own, look_around=False))
    assert environment == {}
    assert settings == "max_split_size_mb:64"
    assert "your own" in why.why


def test_a_variable_this_torch_does_not_read_does_not_count_as_the_users_own():
    unread = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}
    environment, _, _ = decide_allocator(make_target(torch="2.9", env=unread, look_around=False))
    assert environment == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def test_alloc_conf_goes_over_an_inherited_variable():
    own = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}
    target = make_target(torch="2.13", env=own, look_around=False, alloc_conf="")
    environment, settings, _ = decide_allocator(target)
    assert (environment, settings) == ({"PYTORCH_CUDA_ALLOC_CONF": ""}, "")


@pytest.mark.parametrize(
    ("gpu", "precision"), [(None, "fp32"), ("t4", "fp16"), ("v100-16gb", "fp16"), ("rtx-4090", "bf16")]
)
def test_bf16_auto_by_capability(folder, gpu, precision):
    config = write_config(folder, bf16="auto", adapter="lora", lora_r=8, lora_alpha=16, lora_target_linear=True)
    ready = prepared(config, target={"gpu": gpu})
    assert ready.plan.precision == precision
    assert ready.plan.autocast == (precision != "fp32")


def test_fp16_full_fine_tune_is_refused(folder, vramwise):
    config = write_config(folder, fp16=True)
    done = vramwise("train", config, "--random-weights", "--gpu", "t4")
    assert done.exit_code == 1
    assert "fp16-full-finetune" in done.output
    assert "Attempting to unscale FP16 gradients" in done.output
    assert "not started" in done.output
    assert not (folder / "out").exists()


def test_unsupported_keys_stop_before_loading_and_name_their_lines(folder, vramwise):
    config = write_config(folder, relora=True, rl="dpo", lisa_n_layers=4, wandb_project=None)
    done = vramwise("train", config, "--random-weights")
    assert done.exit_code == 2
    message = str(done.exception)
    for key in ("relora", "rl", "lisa_n_layers"):
        line = next(n for n, text in enumerate(config.read_text().splitlines(), 1) if text.startswith(key + ":"))
        assert f"config.yml:{line}: {key} is not supported" in message


@pytest.mark.parametrize(
    "changes",
    [
        {"some_typo": 3},
        {"optimizer": "muon"},
        {"lr_scheduler": "rex"},
        {"adapter": "llama-adapter"},
        {"datasets": [{"path": "samples.jsonl", "type": "sharegpt"}]},
        {"datasets": [{"path": "samples.jsonl", "type": "alpaca", "shards": 4}]},
        {"plugins": ["axolotl.integrations.spectrum.SpectrumPlugin"]},
        {"gradient_checkpointing": "offload"},
        {"hub_model_id": "me/model"},
        {"lora_mlp_kernel": True},
        {"context_parallel_size": 2},
        {"float32": True},
        {"save_safetensors": False},
        {"liger_rope": True},
        {"fsdp_version": 1, "fsdp_config": {"offload_params": False, "state_dict_type": "FULL_STATE_DICT"}},
        {"fsdp_version": 2, "fsdp_config": {"offload_params": False, "mixed_precision_policy": "bf16"}},
        {"lr_scheduler": "linear", "cosine_min_lr_ratio": 0.1},
    ],
)
def test_what_the_engine_cannot_honour_is_an_error(folder, changes):
    with pytest.raises(VramwiseError, match="cannot honour"):
        prepared(write_config(folder, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"relora": False, "hub_model_id": "", "wandb_watch": None, "flash_attn_fuse_mlp": False, "special_tokens": {}},
        {"dataset_prepared_path": "last_run_prepared", "dataset_num_proc": 4, "strict": False},
        {"embedding_lr": None, "sample_packing_bin_size": 100, "model_type": "LlamaForCausalLM"},
    ],
)
def test_keys_that_are_off_or_without_effect_are_accepted(folder, changes):
    path = write_config(folder, **{key: value for key, value in changes.items() if value is not None})
    path.write_text(path.read_text() + "".join(f"{key}:\n" for key, value in changes.items() if value is None))
    assert prepared(path).plan.micro_batch_size == 4


def test_missing_packages_name_the_install_line(folder, monkeypatch):
    monkeypatch.setattr(
        "vramwise.training.parent.extras.find_spec", lambda name: None if name == "transformers" else object()
    )
    with pytest.raises(VramwiseError, match=r"transformers: pip install 'vramwise\[train\]'"):
        prepared(write_config(folder))
    monkeypatch.setattr(
        "vramwise.training.parent.extras.find_spec", lambda name: None if name == "deepspeed" else object()
    )
    with pytest.raises(VramwiseError, match="deepspeed: pip install deepspeed"):
        prepared(write_config(folder, deepspeed={"zero_optimization": {"stage": 2}}), target={"gpus": 2})


def test_a_refusal_names_every_reason_after_the_prediction(folder, vramwise, monkeypatch):
    monkeypatch.setattr(
        "vramwise.training.parent.extras.find_spec", lambda name: None if name == "bitsandbytes" else object()
    )
    config = write_config(folder, optimizer="adamw_8bit", lisa_step_interval=4, relora=True)
    done = vramwise("train", config, "--gpu", "rtx-4090", "--torch", "2.13", "--engine", "transformers")
    assert done.exit_code == 2
    lines = str(done.exception).splitlines()
    assert "2 setting(s) that it cannot honour, 1 package(s) missing" in lines[0]
    assert "memory: " in lines[1]
    assert "(fits)" in lines[1]
    assert any("lisa_step_interval" in line for line in lines)
    assert any("bitsandbytes: pip install 'vramwise[train]'" in line for line in lines)


def test_the_plan_survives_its_file(folder):
    plan = prepared(write_config(folder, val_set_size=0.1, eval_batch_size=2), target={"gpu": "rtx-4090"}).plan
    assert plan.predicted is not None
    assert plan.predicted.phases
    assert TrainPlan.from_json(plan.to_json()) == plan
    assert {one.name for one in plan.decisions} == {"engine", "allocator", "dtype", "batch", "eval", "shapes", "memory"}


def test_a_resume_without_a_checkpoint_is_said(folder):
    (said,) = [one for one in prepared(write_config(folder), resume=True).plan.decisions if one.name == "resume"]
    assert (said.value, said.why) == ("from the start", "output_dir holds no complete checkpoint")


def test_an_evaluation_that_nothing_schedules_needs_no_memory(folder):
    assert prepared(write_config(folder, val_set_size=0.1)).plan.eval_batch_size is None
    assert prepared(write_config(folder, val_set_size=0.1, evals_per_epoch=1)).plan.eval_batch_size == 4


def test_a_restart_must_keep_the_effective_batch(folder):
    plan = prepared(write_config(folder)).plan
    again = plan.restarted(resume_from=None, micro_batch_size=2, gradient_accumulation_steps=2)
    assert (again.attempt, again.effective_batch_size) == (2, 4)
    with pytest.raises(VramwiseError, match="keep the effective batch"):
        plan.restarted(resume_from=None, micro_batch_size=2)


@pytest.mark.usefixtures("short_searches")
def test_a_run_that_does_not_fit_stops_with_what_would_help(folder, vramwise):
    config = write_config(folder, base_model="meta-llama/Llama-3.2-1B", sequence_len=2048, pad_to_sequence_len=True,
                          micro_batch_size=8, adapter="lora", lora_r=8, lora_alpha=16, lora_target_linear=True)  # fmt: skip
    done = vramwise("train", config, "--gpu", "rtx-3090", "--torch", "2.13")
    assert done.exit_code == 1
    assert "does not fit" in done.output
    assert "changes that keep the training result" in done.output
    assert "gradient_checkpointing: true" in done.output
    assert "micro_batch_size: " in done.output
    assert any(line.split()[2:3] == ["fits"] for line in done.output.splitlines())
    assert not (folder / "out").exists()


@pytest.mark.usefixtures("short_searches")
def test_remedies_are_predicted_not_promised(folder):
    config = write_config(folder, base_model="meta-llama/Llama-3.2-1B", sequence_len=1024, pad_to_sequence_len=True,
                          micro_batch_size=4, adapter="lora", lora_r=8, lora_alpha=16, lora_target_linear=True)  # fmt: skip
    ready = prepared(config, target={"gpu": "8GB"})
    found = remedies(ready.subject)
    assert found
    for one in found:
        assert one.fits == (one.prediction.report.out_of_memory is None)
        assert one.prediction.run.batch.effective_batch_size == ready.run.batch.effective_batch_size
        assert one.prediction.needs.peak_allocated_bytes <= ready.prediction.needs.peak_allocated_bytes


def test_axolotl_runs_in_a_child_with_environment_and_guard(folder, vramwise, monkeypatch, capfd):
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    fake = bin_folder / "axolotl"
    fake.write_text('#!/bin/sh\necho "$@"; echo "conf=$PYTORCH_ALLOC_CONF plan=$VRAMWISE_PLAN"; cat "$2"; exit 7\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    text = write_config(folder).read_text()
    done = vramwise("train", folder / "config.yml", "--engine", "axolotl", "--torch", "2.13")
    output = capfd.readouterr().out
    assert done.exit_code == 7
    assert "conf=expandable_segments:True" in output
    assert f"plan={folder / 'out' / 'vramwise.json'}" in output
    assert "vramwise.integrations.axolotl.MemoryGuardPlugin" in output
    assert (folder / "config.yml").read_text() == text


def test_axolotl_missing_names_the_install_line(folder, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(VramwiseError, match="pip install --no-build-isolation axolotl"):
        prepared(write_config(folder), engine="axolotl", random_weights=False)


def test_axolotl_is_not_asked_for_what_only_we_can_do(folder):
    with pytest.raises(VramwiseError, match="--random-weights is not possible with --engine axolotl"):
        prepared(write_config(folder), engine="axolotl")


FAKE_AXOLOTL = """#!{python}
import os, sys
from pathlib import Path
import yaml
from vramwise.training.guard import oom
from vramwise.training.plan import read_plan
plan = read_plan(os.environ["VRAMWISE_PLAN"])
config = yaml.safe_load(Path(sys.argv[2]).read_text())
with (Path(plan.output_dir) / "seen.txt").open("a") as file:
    file.write(f"{{config['micro_batch_size']}} {{config['gradient_accumulation_steps']}} "
               f"{{config.get('resume_from_checkpoint')}}\\n")
if config["micro_batch_size"] > 1:
    folder = Path(plan.output_dir) / "checkpoint-5"
    folder.mkdir(exist_ok=True)
    (folder / "trainer_state.json").write_text('{{"global_step": 5}}')
    oom.record(plan, RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), "train", step=7)
    sys.exit(1)
"""


def test_axolotl_is_started_again_from_its_checkpoint_with_smaller_batches(folder, vramwise, monkeypatch):
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "axolotl").write_text(FAKE_AXOLOTL.format(python=sys.executable))
    (bin_folder / "axolotl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    source = str(Path(__file__).parent.parent.parent / "src")
    monkeypatch.setenv("PYTHONPATH", source)
    config = write_config(folder, micro_batch_size=4, gradient_accumulation_steps=1)
    done = vramwise("train", config, "--torch", "2.13")  # it is installed: nobody has to ask for it
    assert done.exit_code == 0, done.output
    checkpoint = folder / "out" / "checkpoint-5"
    assert (folder / "out" / "seen.txt").read_text().splitlines() == [
        "4 1 None",
        f"2 2 {checkpoint}",
        f"1 4 {checkpoint}",
    ]
    assert "micro-batch × accumulation 4 × 1 → 2 × 2, effective batch as before, from checkpoint" in done.output
    again = vramwise("train", config, "--torch", "2.13")
    assert again.exit_code == 2
    assert "--resume" in str(again.exception)
    assert "--fresh" in str(again.exception)


@pytest.mark.parametrize(
    ("gpu", "written", "handed_over"),
    [
        (None, {}, {"bf16": False}),
        ("t4", {"bf16": "auto"}, {"bf16": False, "fp16": True}),
        ("rtx-4090", {"bf16": "auto"}, {"bf16": True}),
        ("t4", {"bf16": "auto", "float16": True}, {"bf16": False}),
        ("t4", {"bf16": "auto", "fp16": True}, {"bf16": "auto", "fp16": True}),
        ("rtx-4090", {"bf16": False, "tf32": True}, {"bf16": False}),
        ("h100-80gb", {"fp8": True, "bf16": "auto"}, {"bf16": "auto", "fp8": True}),
    ],
)
def test_axolotl_gets_the_dtype_that_was_decided(folder, monkeypatch, gpu, written, handed_over):
    """Not left to Axolotl, which takes emulated bf16 for bf16 and fp16 where there is no GPU."""
    monkeypatch.setattr("vramwise.training.parent.refusing.trainer_command", lambda name: name)
    config = write_config(folder, **written)
    ready = prepared(config, engine="axolotl", random_weights=False, target={"gpu": gpu})
    found = yaml.safe_load(write_axolotl_config(ready.plan).read_text())
    assert {key: found[key] for key in ("bf16", "fp16", "fp8") if key in found} == handed_over
    assert found["plugins"] == ["vramwise.integrations.axolotl.MemoryGuardPlugin"]


def test_axolotl_finds_what_stands_beside_the_config(folder, monkeypatch, tmp_path_factory):
    """It looks in the working folder only."""
    monkeypatch.setattr("vramwise.training.parent.refusing.trainer_command", lambda name: name)
    config = write_config(folder, test_datasets=[{"path": "samples.jsonl", "type": "completion"}])
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    plan = prepared(config, engine="axolotl", random_weights=False).plan
    found = yaml.safe_load(write_axolotl_config(plan).read_text())
    assert found["base_model"] == str(folder / "model")
    assert found["datasets"][0]["path"] == found["test_datasets"][0]["path"] == str(folder / "samples.jsonl")
    monkeypatch.chdir(folder)
    found = yaml.safe_load(write_axolotl_config(plan).read_text())
    assert (found["base_model"], found["datasets"][0]["path"]) == ("model", "samples.jsonl")


def test_the_package_is_a_verb_and_imports_no_torch(tmp_path):
    import subprocess
    import sys

    code = "import vramwise.training.parent.run, vramwise, sys; assert callable(vramwise.train); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
