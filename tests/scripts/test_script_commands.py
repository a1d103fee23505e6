"""Command lines of argparse's subcommands, click and typer: `--args` reaches the parameter that it is meant for."""

import pytest

from vramwise.trainers.scripts.reading import Reading, read_script

HEAD = "import argparse, click, typer\nfrom typing import Annotated\nfrom peft import LoraConfig\n"
HEAD += "from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer\n"
CLICK = """\
@click.command()
@click.argument('data')
@click.option('--model-name', '-m', 'name', default='x/y')
@click.option('--size', type=int, default=4)
@click.option('--pack/--no-pack', default=True)
@click.option('--recompute', is_flag=True)
def cli(data, name, size, pack, recompute):
    SFTTrainer(name, args=SFTConfig(per_device_train_batch_size=size, packing=pack, gradient_checkpointing=recompute))
cli()
"""
TYPER = """\
app = typer.Typer()
@app.command()
def main(name: Annotated[str, typer.Argument()] = 'x/y', size: Annotated[int, typer.Option('--size', '-s')] = 4,
         pack: bool = True, recompute: bool = typer.Option(False, '--recompute')):
    SFTTrainer(name, args=SFTConfig(per_device_train_batch_size=size, packing=pack, gradient_checkpointing=recompute))
app()
"""
SUBCOMMANDS = """\
def sft(a):
    SFTTrainer(a.model, args=SFTConfig(per_device_train_batch_size=a.size, learning_rate=a.rate))
def dpo(a):
    DPOTrainer(a.model, args=DPOConfig(per_device_train_batch_size=a.size, learning_rate=a.rate))
p = argparse.ArgumentParser()
commands = p.add_subparsers(dest='command')
one = commands.add_parser('sft')
one.set_defaults(func=sft)
other = commands.add_parser('dpo')
other.set_defaults(func=dpo)
for each in (one, other):
    each.add_argument('model')
    each.add_argument('--size', type=int, default=2)
one.add_argument('--rate', type=float, default=1e-4)
other.add_argument('--rate', type=float, default=1e-6)
a = p.parse_args()
a.func(a)
"""


def read(body, **reading):
    return read_script("train.py", (HEAD + body).encode(), Reading(bf16=True, capability=(8, 9), **reading))


def four(found):
    keys = ("model_name_or_path", "per_device_train_batch_size", "packing", "gradient_checkpointing")
    return tuple(found.values.get(key) for key in keys)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (CLICK, "rows.json -m a/b --size 8 --no-pack --recompute"),
        (TYPER, "a/b -s 8 --no-pack --recompute"),
    ],
)
def test_options_reach_their_parameters(body, line):
    assert four(read(body)) == ("x/y", 4, True, False)
    assert four(read(body, args=line)) == ("a/b", 8, False, True)


def test_a_subcommand_chooses_its_training():
    found = read(SUBCOMMANDS, args="sft a/b --size 8 --rate 1e-5")
    assert found.script.kind == "sft"
    assert found.values["model_name_or_path"] == "a/b"
    assert (found.values["per_device_train_batch_size"], found.values["learning_rate"]) == (8, 1e-5)
    assert read(SUBCOMMANDS, args="dpo a/b").script.kind == "dpo"


def test_a_flag_with_a_default_for_each_subcommand_is_not_guessed():
    found = read(SUBCOMMANDS)
    assert found.values["per_device_train_batch_size"] == 2
    assert "learning_rate" not in found.values
    assert any(one.key == "learning_rate" for one in found.script.unsaid)
