"""What a new trainer takes: one folder and one line of the registry, and every section of a run."""

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from scratch.trainer import TRAINER, fill

import vramwise
from opened import build_target, make_stack, make_target
from vramwise.documents.document import parse_document
from vramwise.errors import INTERNAL_ERROR
from vramwise.trainers.fields import Fields
from vramwise.trainers.registry import trainer_named
from vramwise.types import PLACES, SECTIONS, SETTINGS, Config

SOURCE = Path(vramwise.__file__).parent
CONFIG = "scratch_model: meta-llama/Llama-3.2-1B\nrows: 4\ntokens: 2048\nhalf: true\n"
LINE = '    "scratch": "scratch",\n'


def target():
    stack = make_stack("scratch", TRAINER.releases(), said=(), torch=None, look_around=False)
    return build_target(stack=stack, env={}, look_around=False)


def test_one_that_is_right_resolves():
    document = parse_document("config.yml", CONFIG.encode())
    run = TRAINER.resolve(document, target(), {})
    assert (run.batch.micro_batch_size, run.shapes.sequence_len, run.precision.compute) == (4, 2048, "bf16")


@pytest.mark.parametrize("section", sorted({section for section, _ in PLACES.values() if section}))
def test_one_that_forgets_a_section_does_not_construct(section):
    mine = [name for name, (its, _) in PLACES.items() if its == section]
    document = parse_document("config.yml", CONFIG.encode())

    fields = Fields(Config(document, document.values, {}), "Scratch")
    fill(fields, target())
    for name in mine:
        del fields.values[name]

    with pytest.raises(TypeError, match=rf"types/sections/{section}\.py.*{PLACES[mine[0]][1]}.*resolve"):
        fields.run(target(), trainer="scratch", title="Scratch", added={})


def test_one_that_forgets_a_setting_does_not_construct():
    document = parse_document("config.yml", CONFIG.encode())
    fields = Fields(Config(document, document.values, {}), "Scratch")
    fill(fields, target())
    del fields.values["offload_params"]
    with pytest.raises(TypeError, match=r"Sharding.*'offload_params'"):
        fields.run(target(), trainer="scratch", title="Scratch", added={})


def test_every_field_of_a_section_is_a_setting():
    inside = {(section, one.name) for section, kind in SECTIONS.items() for one in fields(kind)}
    assert inside == {place for place in PLACES.values() if place[0]}


def test_rare_settings_are_neutral_where_a_trainer_has_nothing_of_the_kind():
    document = parse_document("config.json", b'{"per_device_train_batch_size": 1}')
    run = trainer_named("hf-trainer").resolve(document, make_target(trainer="hf-trainer", gpu="h100"), {})
    plain = [name for name, setting in SETTINGS.items() if setting.rare and setting.plain]
    assert {name: run.value(name) for name in plain} == {name: SETTINGS[name].neutral for name in plain}


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """The package with one more folder and one more line; everything else is linked."""
    folder = tmp_path_factory.mktemp("house")
    package, trainers = folder / "vramwise", folder / "vramwise" / "trainers"
    trainers.mkdir(parents=True)
    for path in SOURCE.iterdir():
        if path.name not in ("trainers", "__pycache__"):
            (package / path.name).symlink_to(path)
    for path in (SOURCE / "trainers").iterdir():
        if path.name not in ("registry.py", "__pycache__"):
            (trainers / path.name).symlink_to(path)
    (trainers / "scratch").symlink_to(Path(__file__).parent / "scratch")
    registry = (SOURCE / "trainers" / "registry.py").read_text(encoding="utf-8")
    added, times = re.subn(r"(?m)^(_FOLDERS\b.*\{\n)", rf"\1{LINE}", registry)
    assert times == 1
    (trainers / "registry.py").write_text(added, encoding="utf-8")
    (folder / "config.yml").write_text(CONFIG, encoding="utf-8")
    return folder


def answer(house, verb):
    """The JSON that a verb gives for the config, on a card of 24 GB."""
    command = [sys.executable, "-m", "vramwise", verb, "config.yml", "--gpu", "rtx-4090", "--format", "json"]
    env = {**os.environ, "PYTHONPATH": str(house), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=house, env=env)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def test_check_works_with_one_folder_and_one_line(house):
    [report] = answer(house, "check")["files"]
    rules = {found["rule"] for found in report["findings"]}
    assert "does-not-fit" in rules
    assert INTERNAL_ERROR not in rules


def test_predict_works_with_one_folder_and_one_line(house):
    assert answer(house, "predict")["peak_reserved_bytes"] > 2**30
