"""No engine replaces files that its run did not write: refused before anything is loaded, and nothing changes."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from installed import needs, needs_training
from replaced_runs import AXOLOTL, refused, state
from tiny_runs import CONFIG, make_folder, prepared, train_here, write_config
from vramwise.errors import VramwiseError
from vramwise.training.parent.own_files import LIST, files_of, matches, own_files, recorded
from vramwise.training.parent.replacing import refuse_replacing, replaced_files

SOURCE = str(Path(__file__).parent.parent.parent / "src")


@pytest.fixture
def folder(tmp_path):
    made = make_folder(tmp_path)
    for name in ("README.md", "model.safetensors", "generation_config.json"):
        (made / "model" / name).write_text(f"the user's {name}")
    return made


def spellings(folder):
    model = folder / "model"
    (folder / "link").symlink_to(model)
    (folder / "sub").mkdir()
    return {
        "absolute": (str(model), str(model)),
        "relative": ("model", str(model)),
        "roundabout": ("./model/", str(folder / "sub" / ".." / "model")),
        "link": (str(folder / "link"), str(model)),
        "link back": (str(model), str(folder / "link")),
    }


@needs_training
@pytest.mark.parametrize("spelling", ["absolute", "relative", "roundabout", "link", "link back"])
@pytest.mark.parametrize("adapter", [None, "lora"])
def test_the_base_models_folder_is_no_output_dir(folder, vramwise, monkeypatch, spelling, adapter):
    monkeypatch.chdir(folder)
    base, output = spellings(folder)[spelling]
    values = AXOLOTL if adapter else CONFIG
    config = write_config(folder, **{**values, "base_model": base, "output_dir": output})
    before = state(folder / "model")
    said = refused(vramwise, config)
    if adapter:
        assert (
            "README.md, tokenizer.json, tokenizer_config.json, which this run did not write and would replace" in said
        )
        assert "--force" in said
    else:
        assert "model.safetensors belongs to the weights that base_model names" in said
    assert state(folder / "model") == before


@needs_training
def test_force_goes_on_but_never_over_the_weights(folder):
    lora = write_config(folder, **{**AXOLOTL, "output_dir": str(folder / "model")})
    one = prepared(lora, random_weights=False, force=True)
    said = refuse_replacing(one.run, one.plan)
    assert "--force: replacing README.md, tokenizer.json, tokenizer_config.json in " in said
    full = write_config(folder, output_dir=str(folder / "model"))
    other = prepared(full, random_weights=False, force=True)
    with pytest.raises(VramwiseError, match=r"model.safetensors belongs to the weights"):
        refuse_replacing(other.run, other.plan)


@needs_training
@pytest.mark.parametrize(
    "name", ["model-00001-of-00002.safetensors", "model.safetensors.index.json", "pytorch_model.bin"]
)
@pytest.mark.parametrize("link", ["hard", "symbolic"])
def test_weights_that_are_linked_into_output_dir_count_as_the_bases(folder, name, link):
    weights = folder / "model" / name
    weights.write_text("weights")
    (folder / "out").mkdir()
    if link == "hard":
        (folder / "out" / name).hardlink_to(weights)
    else:
        (folder / "out" / name).symlink_to(weights)
    one = prepared(write_config(folder), random_weights=False, force=True)
    with pytest.raises(VramwiseError, match=f"{name} belongs to the weights"):
        refuse_replacing(one.run, one.plan)


@needs_training
@pytest.mark.parametrize(("base", "output"), [("model", "model/out"), ("all/model", "all")])
def test_a_base_above_or_below_output_dir_is_not_touched(folder, base, output):
    (folder / "all").mkdir()
    shutil.copytree(folder / "model", folder / "all" / "model")
    one = prepared(write_config(folder, base_model=str(folder / base), output_dir=str(folder / output)))
    assert replaced_files(one.run, one.plan) == []


@needs_training
def test_files_of_other_names_are_nobodys_business(folder):
    out = folder / "out"
    out.mkdir()
    for name in ("notes.txt", "data.csv", "memory.jsonl", "README.md", "model_card.json"):
        (out / name).write_text("theirs")
    one = prepared(write_config(folder))  # a whole model: transformers writes no README.md
    assert replaced_files(one.run, one.plan) == []


@needs_training
@pytest.mark.parametrize("name", ["vramwise.json", "oom.json", "trainer_state.json", "config.json", "tokenizer.json"])
def test_one_file_is_enough(folder, vramwise, name):
    (folder / "out").mkdir()
    (folder / "out" / name).write_text("{}")
    said = refused(vramwise, write_config(folder), "--random-weights")
    assert f"out holds {name}, which this run did not write and would replace" in said
    assert "move it away, or replace it with --force" in said
    assert os.listdir(folder / "out") == [name]  # noqa: PTH208


@needs_training
def test_the_records_of_an_earlier_version_are_ours(folder):
    out = folder / "out"
    one = prepared(write_config(folder))
    out.mkdir()
    (out / "vramwise.json").write_text(one.plan.to_json())
    (out / "oom.json").write_text("{}")
    assert replaced_files(one.run, one.plan) == []


@needs_training
def test_what_a_run_wrote_may_be_replaced_until_somebody_changes_it(folder):
    out = folder / "out"
    one = prepared(write_config(folder))
    with recorded(out):
        for name in ("config.json", "model.safetensors", "trainer_state.json"):
            (out / name).write_text("ours")
    assert replaced_files(one.run, one.plan) == []
    (out / "config.json").write_text("the user's")
    (out / "generation_config.json").write_text("the user's")
    assert replaced_files(one.run, one.plan) == ["config.json", "generation_config.json"]
    with recorded(out):  # a second run, forced: it replaces one of them
        (out / "config.json").write_text("ours again")
    assert replaced_files(one.run, one.plan) == ["generation_config.json"]


@needs_training
def test_a_run_that_was_killed_wrote_what_was_not_there_before(folder):
    out = folder / "out"
    out.mkdir()
    (out / "config.json").write_text("the user's")
    one = prepared(write_config(folder))
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom vramwise.training.parent.own_files import recorded\n"
        "with recorded(sys.argv[1]):\n    Path(sys.argv[1], 'model.safetensors').touch()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(out)], check=False).returncode == -signal.SIGKILL
    assert own_files(out).written is None
    assert replaced_files(one.run, one.plan) == ["config.json"]


@needs_training
def test_a_list_that_came_with_a_copied_folder_does_not_count(folder):
    one = prepared(write_config(folder))
    with recorded(folder / "first"):
        (folder / "first" / "config.json").write_text("x")
    shutil.copytree(folder / "first", folder / "out")
    assert replaced_files(one.run, one.plan) == ["config.json"]


@needs_training
@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "null", "{}", "[" * 100_000, '{"folder": INO, "kept": 3}', '{"folder": INO, "kept": {"a": 1}}',
        '{"folder": INO, "kept": {"a": [1, "x"]}, "written": null}', '{"folder": INO, "kept": {}, "written": []}',
        '{"folder": INO, "kept": {}, "written": {"config.json": [1e999, 2]}}', "\x00\xff",
    ],
)  # fmt: skip
def test_a_damaged_list_counts_for_nothing(folder, text):
    out = folder / "out"
    out.mkdir()
    (out / "config.json").write_text("x")
    (out / LIST).write_text(text.replace("INO", str(out.stat().st_ino)))
    one = prepared(write_config(folder))
    assert replaced_files(one.run, one.plan) == ["config.json"]
    with recorded(out):
        pass
    assert json.loads((out / LIST).read_text())["kept"].keys() == {"config.json"}


# Real runs of the embedded engine


@needs("torch", "transformers")
def test_every_file_of_a_run_is_known(tmp_path):
    folder = make_folder(tmp_path, samples=8)
    train_here(write_config(folder, max_steps=1, save_strategy="steps", save_steps=1))
    written = {path.name for path in (folder / "out").iterdir() if path.is_file() and not path.name.startswith(".")}
    assert "model.safetensors" in written
    patterns = files_of("transformers", adapter=False, custom_code=False)
    assert {name for name in written if not matches(name, patterns)} <= {"memory.jsonl"}  # only appended to


@pytest.mark.nightly  # three processes each that import torch
@pytest.mark.parametrize("adapter", [None, "lora"])
def test_every_file_of_a_real_run_is_known_and_may_be_replaced_by_the_next(tmp_path, adapter):
    pytest.importorskip("torch", reason="training needs torch: pip install 'vramwise[train]'")
    pytest.importorskip("peft", reason="LoRA needs peft: pip install 'vramwise[train]'")
    folder = make_folder(tmp_path, samples=8)
    config = write_config(folder, **{**(AXOLOTL if adapter else CONFIG), "max_steps": 1})
    out = folder / "out"

    def train(*words):
        command = [sys.executable, "-m", "vramwise", "train", str(config), "--random-weights", *words]
        environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    done = train()
    assert done.returncode == 0, done.stdout + done.stderr
    patterns = files_of("transformers", adapter=adapter is not None, custom_code=False)
    written = {path.name for path in out.iterdir() if path.is_file() and not path.name.startswith(".")}
    assert {name for name in written if not matches(name, patterns)} == {"memory.jsonl"}  # only appended to
    assert train("--fresh").returncode == 0
    name = "README.md" if adapter else "config.json"
    (out / name).write_text("the user's own")
    before = state(out)
    done = train("--fresh")
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"holds {name}, which this run did not write and would replace" in done.stderr
    assert state(out) == before
