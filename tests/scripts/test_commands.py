"""What people type: shell scripts and launch lines, with files that are here and files that are not."""

import json

import pytest

from vramwise.errors import ConfigError, VramwiseError
from vramwise.opening.options import Command, Options
from vramwise.opening.sources import NotOurs
from vramwise.opening.subject import open_subject

MODEL = "Qwen/Qwen2.5-0.5B"
SCRIPT = """import argparse
from trl import SFTConfig, SFTTrainer
p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=8)
p.add_argument("--strategy", default="steps")
a = p.parse_args()
SFTTrainer("Qwen/Qwen2.5-0.5B", args=SFTConfig(per_device_train_batch_size=a.batch, eval_strategy=a.strategy))
"""
AXOLOTL = {
    "base_model": MODEL,
    "datasets": [{"path": "d", "type": "alpaca"}],
    "micro_batch_size": 1,
    "bf16": True,
    "output_dir": "o",
}
FACTORY = f"--stage sft --do_train --model_name_or_path {MODEL} --template qwen --finetuning_type lora"


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "sft.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(here, text, **options):
    (here / "run.sh").write_text(text)
    return open_subject("run.sh", Options(**options))


@pytest.mark.parametrize(
    "start",
    ["llamafactory-cli train", "python src/train_bash.py", "CUDA_VISIBLE_DEVICES=0 deepspeed src/train_bash.py"],
)
def test_llamafactory_is_known_by_its_options(here, start):
    run = opened(here, f"{start} {FACTORY} --lora_rank 16 --cutoff_len 512 --val_size 0.1 --report_to none").run
    assert (run.trainer, run.adapter.lora_r, run.shapes.sequence_len) == ("llamafactory", 16, 512)


@pytest.mark.parametrize("path", ["trl/scripts/sft.py", "examples/scripts/sft.py", "-m trl.scripts.sft"])
def test_trls_own_scripts_need_not_be_here(here, path):
    start = "accelerate launch --num_processes 2" if path.endswith(".py") else "python"
    words = f"--model_name {MODEL} --dataset_name d --use_peft --lora_r 4 --eval_strategy no --lora_target_modules a b"
    subject = opened(here, f"{start} {path} {words}")
    assert (subject.run.trainer, subject.run.adapter.lora_r, subject.run.base_model) == ("trl", 4, MODEL)
    assert subject.document.values["eval_strategy"] == "no"
    assert subject.document.values["lora_target_modules"] == ["a", "b"]


@pytest.mark.parametrize("word", ["no", "off", "on", "yes", "none"])
def test_text_stays_text(here, word):
    assert opened(here, f"python sft.py --strategy {word}").document.values["eval_strategy"] == word
    (here / "sft.py").write_text(
        "from transformers import HfArgumentParser\nfrom trl import SFTConfig, SFTTrainer\n"
        "(c,) = HfArgumentParser((SFTConfig,)).parse_args_into_dataclasses()\nSFTTrainer('m', args=c)\n"
    )
    assert opened(here, f"python sft.py --run_name {word}").document.values["run_name"] == word


def test_text_of_a_config_that_flags_change_stays_text(here):
    (here / "c.yaml").write_text(json.dumps({"model_name_or_path": MODEL, "dataset_name": "d", "use_peft": True}))
    values = open_subject(Command("trl sft --config c.yaml --eval_strategy no --learning_rate 1e-5")).document.values
    assert (values["eval_strategy"], values["learning_rate"]) == ("no", 1e-5)


def test_the_command_that_trains_is_found_among_others(here):
    text = 'export ACC="accelerate launch --num_processes 1"\npython data/prepare.py\nB=2\n$ACC sft.py --batch $B\n'
    subject = opened(here, text)
    assert subject.run.batch.micro_batch_size == 2
    assert subject.notes == ("the command in line 4 (sft.py)",)


def test_several_trainings_are_listed_and_one_can_be_named(here):
    text = "python sft.py --batch 1\npython sft.py --batch 2\n"
    first, second = opened(here, text), opened(here, text, call=2)
    assert (first.run.batch.micro_batch_size, second.run.batch.micro_batch_size) == (1, 2)
    assert "2 commands train, and --call N reads another (2: line 2)" in first.notes[0]
    with pytest.raises(VramwiseError, match="2 commands that train"):
        opened(here, text, call=3)


def test_a_missing_file_names_the_shell_script_and_its_line(here):
    with pytest.raises(ConfigError, match=r"gone\.py, which run\.sh starts in line 2, is not here"):
        opened(here, "set -e\npython gone.py\n")
    with pytest.raises(ConfigError, match=r"gone\.yml, which run\.sh starts in line 1, is not here"):
        opened(here, "axolotl train gone.yml\n")


def test_files_are_found_from_the_root_of_the_repository_and_after_cd(here):
    (here / "scripts").mkdir()
    (here / "src").mkdir()
    (here / "sft.py").rename(here / "src/sft.py")
    (here / "scripts/run.sh").write_text("cd src\npython sft.py --batch 3\n")
    assert open_subject("scripts/run.sh").run.batch.micro_batch_size == 3


def test_a_script_that_is_not_here_is_read_by_its_arguments(here):
    words = f"--model_name_or_path {MODEL} --per_device_train_batch_size 3 --model_max_length 700 --bf16 True"
    subject = opened(here, f'torchrun --nproc_per_node=2 train.py {words} --evaluation_strategy "no" --tf32 $TF')
    assert (subject.run.trainer, subject.run.batch.micro_batch_size, subject.run.batch.gpus) == ("hf-trainer", 3, 2)
    assert (subject.run.shapes.sequence_len, subject.run.adapter.kind) == (700, None)
    assert any("train.py (not here)" in one for one in subject.notes)
    assert any("--tf32 $TF: set outside run.sh" in one for one in subject.notes)
    subject = opened(here, f"python train.py {words} --lora_enable True --lora_r 32 --bits 4")
    assert (subject.run.adapter.kind, subject.run.adapter.lora_r, subject.run.loading.quantization) == (
        "qlora",
        32,
        "4bit",
    )


def test_a_yaml_given_to_a_script_that_cannot_be_followed_is_the_config(here):
    (here / "c.yaml").write_text(
        json.dumps(
            {"model_name_or_path": MODEL, "dataset_name": "d", "per_device_train_batch_size": 5, "use_peft": True}
        )
    )
    (here / "own.py").write_text("from mine import main\nmain()\n")
    subject = opened(here, "accelerate launch own.py c.yaml")
    assert subject.run.batch.micro_batch_size == 5
    assert "own.py (calls no trainer that is known): c.yaml" in subject.notes[0]


def test_files_that_a_heredoc_writes_are_read(here):
    yaml = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 2\n"
    run = opened(here, f"cat > acc.yaml <<EOF\n{yaml}EOF\naccelerate launch --config_file acc.yaml sft.py").run
    assert (run.batch.gpus, run.sharding.kind) == (2, "fsdp2")
    config = f"base_model: {MODEL}\nmicro_batch_size: 6\ndatasets: [{{path: d, type: alpaca}}]\noutput_dir: o\n"
    run = opened(here, f"cat <<EOF > a.yml\n{config}EOF\naxolotl train a.yml --sequence-len 300").run
    assert (run.batch.micro_batch_size, run.shapes.sequence_len) == (6, 300)


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("swift rlhf --model m", "ms-swift"),
        ("tune run lora_finetune_single_device --config c", "torchtune"),
        ("python3 -m verl.trainer.main_ppo a=b", "verl"),
        ("deepspeed --module openrlhf.cli.train_ppo --pretrain m", "OpenRLHF"),
        ("torchrun pretrain_gpt.py --num-layers 2", "Megatron"),
        ("python -m mlx_lm.lora --train", "MLX"),
        ("litgpt finetune_lora m", "LitGPT"),
        ("accelerate launch train_dreambooth_lora.py --resolution 512", "diffusers"),
    ],
)
def test_other_tools_are_named(here, command, title):
    with pytest.raises(NotOurs, match=f"starts {title}, which vramwise does not read"):
        opened(here, command)


def test_a_plain_run_of_another_tool_is_predicted_and_skipped_by_check(here, vramwise):
    text = f"swift sft --model {MODEL} --train_type lora --lora_rank 4 --max_length 256 --torch_dtype bfloat16\n"
    (here / "run.sh").write_text(text)
    (here / "c.yml").write_text(json.dumps(AXOLOTL))
    line = f"vramwise predict --model {MODEL} --adapter lora --rank 4 --sequence-len 256"
    done = vramwise("predict", "run.sh", "--gpu", "rtx-4090")
    assert done.exit_code == 0
    assert line in done.stdout
    checked = vramwise("check", "run.sh", "c.yml", "--gpu", "rtx-4090")
    assert checked.exit_code < 2
    assert "c.yml" in checked.stdout


def test_an_unreadable_shell_script_does_not_end_check(here, vramwise):
    (here / "run.sh").write_text("echo nothing\n")
    (here / "c.yml").write_text(json.dumps(AXOLOTL))
    assert "c.yml" in vramwise("check", "run.sh", "c.yml").stdout


def test_what_exists_is_a_path(here, vramwise):
    (here / "axolotl").mkdir()
    config = json.dumps(AXOLOTL)
    (here / "axolotl/a.yml").write_text(config)
    (here / "b.yml").write_text(config)
    shown = vramwise("check", "axolotl", "b.yml").stdout
    assert "a.yml" in shown
    assert "b.yml" in shown


def test_a_flag_that_the_script_does_not_have_stops_it(here, vramwise):
    done = vramwise("predict", "sft.py", "--args", "--batsh 1")
    assert done.exit_code == 1
    assert "the script has no flag --batsh: did you mean --batch?" in done.stdout
    assert open_subject("sft.py", Options(script_args="--bat 3")).run.batch.micro_batch_size == 3


def test_what_if_sets_the_flag_behind_a_key(here, vramwise):
    done = vramwise("predict", "sft.py", "--gpu", "rtx-4090", "--what-if", "per_device_train_batch_size=1")
    assert done.exit_code in (0, 1)
    assert "What if per_device_train_batch_size=1" in done.stdout


@pytest.mark.parametrize("name", ["run.slurm", "run.bash", "run"])
def test_a_shell_script_is_known_by_its_name_or_first_line(here, name):
    (here / name).write_text("#!/usr/bin/env bash\n#SBATCH --gres=gpu:2\nsrun python sft.py --batch 4\n")
    assert open_subject(name).run.batch.micro_batch_size == 4


def test_what_a_plain_run_is_called_elsewhere_is_understood(here):
    words = f"--base_model={MODEL} --lora_target_modules='[q_proj,v_proj]' --micro_batch_size=8 --cutoff_len=256"
    run = opened(here, f"python finetune.py {words} --lora_r=16").run
    assert (run.batch.micro_batch_size, run.shapes.sequence_len, run.adapter.lora_r) == (8, 256, 16)
    assert run.adapter.lora_target_modules == ("q_proj", "v_proj")
    run = opened(here, f"python own_lora.py --model {MODEL} --learning_rate 1e-4 --evaluation_strategy steps").run
    assert (run.adapter.kind, run.adapter.lora_r, run.evaluation.evaluates) == ("lora", 8, True)
    run = opened(here, f"python own.py --model {MODEL} --train_type sft --use_lora=True --learning_rate 1e-4").run
    assert run.adapter.kind == "lora"


def test_the_name_of_a_script_that_is_not_here_says_the_method(here):
    words = f"--model {MODEL} --learning_rate 1e-4 --accumulation_steps 6 --epochs 2"
    run = opened(here, f"CUDA_VISIBLE_DEVICES=0,1,2 accelerate launch train_qlora.py {words}").run
    assert (run.adapter.kind, run.batch.gpus, run.batch.gradient_accumulation_steps) == ("qlora", 3, 6)
    run = opened(here, f"CUDA_VISIBLE_DEVICES=0,1 deepspeed finetune_dpo.py {words} --beta 0.2 --own_flag 3").run
    assert (run.trainer, run.objective.kind, run.batch.gpus) == ("trl", "dpo", 2)


def test_other_words_of_scripts_that_are_not_here(here):
    fsdp = f"--model_name {MODEL} --batch_size_training 2 --enable_fsdp --pure_bf16"
    run = opened(here, f"torchrun --nproc_per_node 2 finetuning.py {fsdp}").run
    assert (run.precision.weights_dtype, run.sharding.kind, run.batch.gpus) == ("bf16", "fsdp2", 2)
    words = f"--model_name_or_path {MODEL} --per_device_train_batch_size 2 --deepspeed"
    run = opened(here, f"deepspeed --num_gpus 2 main.py {words} --zero_stage 3 --max_seq_len 64").run
    assert (run.sharding.kind, run.shapes.sequence_len) == ("zero3", 64)
    assert opened(here, f"deepspeed --num_gpus 2 main.py {words}").run.sharding.kind == "ddp"
    words = f"--base_model {MODEL} --micro_batch_size 4 --use_gradient_checkpointing"
    for told in ("--adapter_name lora", "--lora_r $1"):
        run = opened(here, f"python finetune.py {words} {told}").run
        assert (run.adapter.kind, run.savings.gradient_checkpointing) == ("lora", True)


def test_a_wrong_option_is_named_with_its_command(here, vramwise):
    (here / "run.sh").write_text(f"set -e\nllamafactory-cli train {FACTORY} --lora_rank eight\n")
    done = vramwise("predict", "run.sh")
    assert done.exit_code == 2
    assert "run.sh:2: lora_rank takes a whole number, found the text 'eight'" in str(done.exception)
    done = vramwise("check", "run.sh")
    assert "run.sh:2: error argument-misread: lora_rank" in done.stdout
    assert "<text>" not in done.stdout


def test_an_unknown_program_is_named(here, vramwise):
    (here / "run.sh").write_text(f"echo hi\nown_trainer train --model_name_or_path {MODEL} --lr 1\n")
    done = vramwise("predict", "run.sh")
    assert (done.exit_code, "run.sh:2" in str(done.exception)) == (2, True)
    assert "own_trainer is a program that vramwise does not know" in str(done.exception)


@pytest.mark.parametrize(
    ("imports", "title"), [("import keras", "Keras"), ("from lightning import Trainer", "Lightning")]
)
def test_a_script_names_the_tool_that_it_imports(here, vramwise, imports, title):
    (here / "own.py").write_text(f"{imports}\nimport datasets\nfit(datasets.load())\n")
    done = vramwise("predict", "own.py")
    assert (done.exit_code, f"this is a script for {title}, which vramwise does not read" in str(done.exception)) == (
        2,
        True,
    )


@pytest.mark.parametrize("start", ["FORCE_TORCHRUN=1 ", "export FORCE_TORCHRUN=1\n", ""])
def test_llamafactorys_command_told_to_start_torchrun_takes_deepspeed_on_one_card(here, vramwise, start):
    (here / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}')
    text = f"{start}llamafactory-cli train {FACTORY} --output_dir o --deepspeed ds.json\n"
    subject = opened(here, text)
    assert subject.target.launcher == ("torchrun" if start else "cli")
    assert "expandable_segments:True" in subject.run.allocator.settings  # the command sets it before torchrun
    done = vramwise("check", "run.sh")
    assert ("deepspeed on one card is rejected" in done.stdout) is (not start)


def test_options_of_an_old_llamafactory_date_it_behind_any_launcher(here):
    subject = opened(here, f"deepspeed --num_gpus 1 src/train_bash.py {FACTORY} --flash_attn False")
    assert subject.target.stack.releases["llamafactory"].version.startswith("0.6.")
