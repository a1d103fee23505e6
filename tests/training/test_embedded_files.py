"""Which files the embedded engine trains: Axolotl's and plain arguments; of others it says what to do instead."""

import json

import pytest
from plans import make_plan

import vramwise
from installed import Later, needs
from tiny_runs import make_folder, prepared
from vramwise.errors import VramwiseError
from vramwise.training.plan import write_plan
from vramwise.training.worker.main import run_of

engine = Later("vramwise.training.worker.engine_transformers")
progress = Later("vramwise.training.worker.progress")

COMMON = {"model_name_or_path": "model", "per_device_train_batch_size": 2, "bf16": False, "report_to": "none"}
FILES = {
    "trl": {**COMMON, "dataset_name": "data", "max_length": 24},
    "llamafactory": {**COMMON, "stage": "sft", "do_train": True, "dataset": "toy", "template": "default"},
}
INSTALL = {"trl": "pip install trl peft", "llamafactory": "pip install llamafactory"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")  # neither trainer is installed
    return make_folder(tmp_path)


def write(folder, trainer, **changes):
    path = folder / "config.yml"
    path.write_text(json.dumps({**FILES[trainer], "output_dir": str(folder / "out"), **changes}))
    return path


@pytest.mark.parametrize("trainer", FILES)
def test_a_file_whose_trainer_is_missing_names_the_install_in_one_sentence(folder, vramwise, trainer):
    title = {"trl": "TRL", "llamafactory": "LLaMA-Factory"}[trainer]
    path = write(folder, trainer)
    done = vramwise("train", path)
    said = f"{path} is a file of {title}, which is not installed here: {INSTALL[trainer]}"
    assert (done.exit_code, str(done.exception)) == (2, said)
    assert not (folder / "out").exists()


@pytest.mark.parametrize("trainer", FILES)
def test_the_embedded_engine_is_refused_for_it(folder, vramwise, trainer):
    done = vramwise("train", write(folder, trainer), "--engine", "transformers")
    assert done.exit_code == 2
    assert f"use --engine {trainer}" in str(done.exception)
    predicted = vramwise("predict", write(folder, trainer), "--engine", "transformers", "--gpu", "24GB")
    assert predicted.exit_code == 2
    assert "the embedded engine does not train" in str(predicted.exception)


@pytest.mark.parametrize(("trainer", "kind"), [("trl", "trl:sft"), ("llamafactory", "llamafactory")])
@pytest.mark.parametrize("by_file", [False, True], ids=["option", "file"])
def test_a_run_that_an_earlier_release_began_is_left_to_that_release(folder, vramwise, trainer, kind, by_file):
    write_plan(make_plan(folder / "out", engine="transformers", trainer=kind))
    path = write(folder, trainer, **({"resume_from_checkpoint": True} if by_file else {}))
    done = vramwise("train", path, *([] if by_file else ["--resume"]))
    assert done.exit_code == 2
    assert "pip install vramwise==0.5.0" in str(done.exception)
    assert "--fresh" in str(done.exception)
    # Not resumed, it is a run like any other.
    assert INSTALL[trainer] in str(vramwise("train", write(folder, trainer)).exception)


def test_a_file_of_a_trainer_without_a_command(folder, vramwise):
    path = folder / "config.yml"
    path.write_text("model_name_or_path: model\nmax_seq_length: 256\n")
    done = vramwise("train", path, "--trainer", "unsloth")
    assert done.exit_code == 2
    assert "is a file of Unsloth, which vramwise train cannot start" in str(done.exception)


def arguments(folder, **changes):
    """A file of TrainingArguments, and texts for it."""
    rows = [{"text": f"one two {'three ' * 10}"} for _ in range(40)]
    (folder / "texts.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {**COMMON, "gradient_accumulation_steps": 2, "learning_rate": 0.01, "optim": "adamw_torch"}
    config |= {"num_train_epochs": 1, "save_strategy": "no", "output_dir": str(folder / "out")}
    config |= {"train_file": "texts.json", "block_size": 32, "warmup_ratio": 0.1, **changes}
    path = folder / "arguments.json"
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}, indent=1))
    return path


def loaded(path, **options):
    plan = prepared(path, **options).plan
    return engine.make_trainer(run_of(plan), plan, progress=progress.Progress())


@needs("torch", "transformers")
def test_plain_arguments_are_trained_as_run_clm_does(folder, monkeypatch):
    """Texts joined and cut into blocks, the first twentieth held out."""
    monkeypatch.chdir(folder)
    trainer = loaded(arguments(folder), target={"versions": ("transformers==5.6.0",)})
    tokens = len(trainer.processing_class(f"one two {'three ' * 10}")["input_ids"])
    assert trainer.train_dataset.lengths() == [32] * (38 * tokens // 32)
    assert trainer.args.warmup_steps == 0.1
    evaluating = arguments(folder, eval_strategy="steps", eval_steps=2, validation_file="texts.json", do_eval=True)
    trainer = loaded(evaluating, target={"versions": ("transformers==5.6.0",)})
    assert trainer.train_dataset.lengths() == trainer.eval_dataset.lengths() == [32] * (40 * tokens // 32)


@needs("torch", "transformers")
def test_a_rate_in_the_spelling_that_yaml_takes_for_a_text(folder):
    path = folder / "arguments.yml"
    path.write_text(arguments(folder, learning_rate=1e-05).read_text())
    assert "1e-05" in path.read_text()
    run = run_of(prepared(path).plan)
    assert run.config.get("arguments")["learning_rate"] == 1e-05


@needs("torch", "transformers")
@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({"train_file": None}, ["no train_file"]),
        ({"block_size": None, "label_smoothing_factor": 0.1}, ["no block_size", "label_smoothing_factor"]),
        ({"optim": "lomo"}, ["optimizer lomo is not honoured"]),
    ],
)
def test_every_key_that_cannot_be_honoured_is_named_at_once(folder, changes, reasons):
    path = arguments(folder, **changes)
    with pytest.raises(VramwiseError, match="cannot honour") as refused:
        prepared(path, random_weights=False)
    said = str(refused.value)
    assert all(reason in said for reason in reasons), said
    for key in set(changes) & {"label_smoothing_factor", "optim"}:
        line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if f'"{key}"' in text)
        assert f"arguments.json:{line}: " in said


def test_a_plan_of_another_trainer_is_refused_by_the_worker(folder):
    plan = make_plan(folder, engine="transformers", trainer="trl:sft", config_text=json.dumps(FILES["trl"]))
    with pytest.raises(vramwise.VramwiseError, match="the embedded engine does not train TRL's files"):
        run_of(plan)
