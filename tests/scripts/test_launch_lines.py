"""Launch lines and shell scripts: which program, which file, how many GPUs, which overrides."""

import json
import shlex

import pytest

from vramwise.errors import ConfigError, VramwiseError
from vramwise.opening.options import Command, Options
from vramwise.opening.subject import open_subject
from vramwise.trainers.launch import is_launch, read_launch, read_shell


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("accelerate launch --num_processes 4 --config_file f.yaml train.py --lr 1", ("script", "train.py", None, 4)),
        ("torchrun --nnodes 2 --nproc_per_node=8 train.py", ("script", "train.py", None, 16)),
        ("deepspeed --include localhost:0,1,2 train.py", ("script", "train.py", None, 3)),
        ("trl dpo --config a.yaml --use_peft", ("trl", None, "a.yaml", None)),
        ("llamafactory-cli train x.yaml cutoff_len=512", ("llamafactory", None, "x.yaml", None)),
        ("CUDA_VISIBLE_DEVICES=0,1 axolotl train x.yml --micro-batch-size 2", ("axolotl", None, "x.yml", 2)),
        ("uv run python -m torch.distributed.run --nproc_per_node 2 t.py", ("script", "t.py", None, 2)),
    ],
)
def test_a_launch_line_is_understood(line, expected):
    found = read_launch(shlex.split(line))
    assert (found.program, found.script, found.config, found.gpus) == expected


def test_options_are_keys():
    found = read_launch(["trl", "sft", "--lora-r", "8", "--use_peft", "--lr=1e-5"])
    assert found.options == {"lora_r": "8", "use_peft": True, "lr": "1e-5"}
    assert found.kind == "sft"


def test_a_shell_script_is_read_with_its_variables():
    text = '#!/bin/bash\nMODEL="m/x"\nN=2\necho start\naccelerate launch --num_processes $N \\\n  t.py --model ${MODEL} \\\n  --seed ${S:-3}\n'
    (found,) = read_shell(text)
    assert (found.gpus, found.line) == (2, 5)
    assert found.options == {"model": "m/x", "seed": "3"}


def test_what_starts_nothing_is_one_sentence():
    assert not is_launch(["config.yml"])
    with pytest.raises(ConfigError, match="not a known training command"):
        read_launch(["trl"])
    with pytest.raises(ConfigError, match="no known training command"):
        read_shell("echo hello\n")


FSDP = {
    "distributed_type": "FSDP",
    "num_processes": 4,
    "fsdp_config": {"fsdp_version": 2, "fsdp_cpu_ram_efficient_loading": True},
}
ZERO = {"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": "ds.json"}}
CONFIGS = {
    "ax.yml": {
        "base_model": "meta-llama/Llama-3.1-8B",
        "datasets": [{"path": "d", "type": "alpaca"}],
        "micro_batch_size": 1,
        "bf16": True,
        "output_dir": "o",
    },
    "trl.yaml": {"model_name_or_path": "meta-llama/Llama-3.1-8B", "dataset_name": "d", "use_peft": True},
    "lf.yaml": {
        "model_name_or_path": "meta-llama/Llama-3.1-8B",
        "stage": "sft",
        "finetuning_type": "lora",
        "do_train": True,
        "dataset": "alpaca_en_demo",
        "template": "llama3",
        "output_dir": "o",
        "bf16": True,
    },
}
SCRIPT = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
Trainer(model=model, args=TrainingArguments(output_dir="o", bf16=True), train_dataset=None).train()
"""


@pytest.fixture
def beside(tmp_path, monkeypatch):
    files = {**CONFIGS, "fsdp.yaml": FSDP, "zero.yaml": ZERO, "ds.json": {"zero_optimization": {"stage": 3}}}
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "t.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)


STARTED = ["src/train.py lf.yaml", "-m llamafactory.cli train lf.yaml", "-m axolotl.cli.train ax.yml", "t.py"]


@pytest.mark.parametrize("started", STARTED)
@pytest.mark.parametrize(
    ("told", "sharding", "gpus"),
    [
        ("--config_file fsdp.yaml", "fsdp2", 4),
        ("--config_file zero.yaml --num_processes 2", "zero3", 2),
        ("--use_fsdp --fsdp_version 2 --num_processes 8", "fsdp2", 8),
        ("--use_deepspeed --zero_stage 1 --num_processes 2", "zero1", 2),
    ],
)
@pytest.mark.usefixtures("beside")
def test_what_accelerate_is_told_counts_for_every_trainer(started, told, sharding, gpus):
    run = open_subject(Command(f"accelerate launch {told} {started}")).run
    assert (run.sharding.kind, run.batch.gpus) == (sharding, gpus)


@pytest.mark.usefixtures("beside")
def test_axolotl_does_not_know_what_the_launcher_was_told(tmp_path):
    """accelerate wraps the model that Axolotl has read whole; what Axolotl's own file says comes first."""
    line = "accelerate launch --config_file fsdp.yaml -m axolotl.cli.train ax.yml"
    run = open_subject(Command(line)).run
    assert run.loading.loads_through == "device"
    assert not run.sharding.fsdp_one_root
    assert run.sharding.fsdp_widens == "trained"
    assert "not measured" in run.origins["sharding"].why
    own = {**CONFIGS["ax.yml"], "deepspeed": "deepspeed_configs/zero1.json"}
    (tmp_path / "ax.yml").write_text(json.dumps(own))
    assert open_subject(Command(line)).run.sharding.kind == "zero1"


@pytest.mark.usefixtures("beside")
def test_a_launchers_file_that_is_missing_is_said():
    run = open_subject(Command("accelerate launch --config_file gone.yaml -m axolotl.cli.train ax.yml")).run
    assert "gone.yaml is not available: counted without sharding" in run.origins["sharding"].why


@pytest.mark.usefixtures("beside")
def test_llamafactory_loads_into_host_memory_where_the_launcher_has_said_fsdp():
    launched = open_subject(Command("accelerate launch --config_file fsdp.yaml src/train.py lf.yaml")).run
    assert launched.loading.loads_through == "host"
    assert launched.loading.shards_by_tensor


@pytest.mark.usefixtures("beside")
def test_a_deepspeed_file_that_accelerates_own_file_names_is_read():
    options = Options(gpu="4xh100", trainer="trl:sft", settings=("accelerate_config=zero.yaml",))
    assert open_subject("trl.yaml", options).run.sharding.kind == "zero3"


@pytest.mark.parametrize(("gpu", "cards", "name"), [("4xh100", 3, "H100 80GB"), ("3xh100", 3, "H100 80GB")])
def test_a_launch_may_leave_cards_idle(tmp_path, gpu, cards, name):
    (tmp_path / "t.py").write_text(
        "from trl import SFTConfig, SFTTrainer\nSFTTrainer('Qwen/Qwen3-0.6B', args=SFTConfig())\n"
    )
    line = f"accelerate launch --num_processes 3 {tmp_path / 't.py'}"
    target = open_subject(Command(line), Options(gpu=gpu)).run.target
    assert (target.gpus, target.gpu.name) == (cards, name)


def test_a_launch_does_not_start_more_processes_than_there_are_cards(tmp_path):
    (tmp_path / "t.py").write_text(
        "from trl import SFTConfig, SFTTrainer\nSFTTrainer('Qwen/Qwen3-0.6B', args=SFTConfig())\n"
    )
    line = f"accelerate launch --num_processes 3 {tmp_path / 't.py'}"
    with pytest.raises(VramwiseError, match="use only one of them"):
        open_subject(Command(line), Options(gpu="2xh100"))
