"""Launch lines and shell scripts: which program, which file, how many GPUs, which overrides."""

import shlex

import pytest

from vramwise.errors import ConfigError
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
    found = read_shell(text)
    assert (found.gpus, found.line) == (2, 5)
    assert found.options == {"model": "m/x", "seed": "3"}


def test_what_starts_nothing_is_one_sentence():
    assert not is_launch(["config.yml"])
    with pytest.raises(ConfigError, match="not a known training command"):
        read_launch(["trl"])
    with pytest.raises(ConfigError, match="no known training command"):
        read_shell("echo hello\n")
