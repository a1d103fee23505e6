"""TRL's and LLaMA-Factory's files under the embedded engine: the same losses as theirs, or every reason why not."""

import json
from pathlib import Path

import embedded_cases as cases
import pytest
from tiny_runs import losses, prepared, train_here

from installed import Later, needs
from vramwise.errors import VramwiseError
from vramwise.training.worker.main import run_of

pytestmark = needs("torch", "transformers")
torch = Later("torch")
engine = Later("vramwise.training.worker.engine_transformers")
progress = Later("vramwise.training.worker.progress")

RECORDED = json.loads((Path(__file__).parent.parent / "data" / "embedded_losses.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("files")
    cases.make(made)
    return made


@pytest.fixture(autouse=True)
def _here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PATH", "/nowhere")  # neither trainer is installed


@pytest.mark.parametrize("name", cases.CASES)
def test_the_losses_of_the_real_trainer(folder, name):
    expected = RECORDED[cases.trainer_of(name)]["losses"][name]
    trainer = train_here(folder / f"{name}.yml", random_weights=False)
    assert losses(trainer) == pytest.approx(expected, abs=2e-4)
    assert expected[0] - expected[-1] > 0.05, "nothing is learnt, so equal losses would say nothing"


def changed(folder, name, **changes):
    config = json.loads((folder / f"{name}.yml").read_text()) | changes
    path = folder / "changed.yml"
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}, indent=1))
    return path


def test_another_micro_batch_keeps_the_losses(folder):
    path = changed(folder, "trl_completion", per_device_train_batch_size=4, gradient_accumulation_steps=1)
    expected = RECORDED["trl"]["losses"]["trl_completion"]
    assert losses(train_here(path, random_weights=False)) == pytest.approx(expected, abs=2e-4)


def loaded(path, **options):
    plan = prepared(path, random_weights=False, **options).plan
    return engine.make_trainer(run_of(plan), plan, progress=progress.Progress())


def trained(trainer):
    return {name: weight for name, weight in trainer.model.named_parameters() if weight.requires_grad}


def test_lora_as_each_trainer_makes_it(folder):
    """TRL leaves targets to PEFT (q and v); LLaMA-Factory trains all linear layers, in fp32 on what is stored."""
    theirs = trained(loaded(changed(folder, "trl_text", use_peft=True, dtype="bfloat16", eval_strategy="no")))
    assert {name.split(".")[-4] for name in theirs} == {"q_proj", "v_proj"}
    assert all(weight.shape[0] == 16 for name, weight in theirs.items() if "lora_A" in name)
    path = changed(folder, "llamafactory_alpaca", finetuning_type="lora", lora_rank=4, val_size=None)
    model = loaded(path).model
    weights = dict(model.named_parameters())
    adapters = {name: weight for name, weight in weights.items() if weight.requires_grad}
    assert len({name.split(".")[-4] for name in adapters}) == 7
    assert {weight.dtype for weight in adapters.values()} == {torch.float32}
    assert model.peft_config["default"].lora_alpha == 8


@pytest.mark.parametrize(
    ("name", "changes", "reasons"),
    [
        ("trl_text", {"packing": True}, ["packing is not honoured"]),
        ("trl_text", {"assistant_only_loss": True, "loss_type": "dft"}, ["assistant_only_loss", "loss_type dft"]),
        ("trl_text", {"env": {"PYTORCH_ALLOC_CONF": "x:1", "NCCL_DEBUG": "INFO"}}, ["env: NCCL_DEBUG is not set"]),
        ("trl_text", {"deepspeed": {"zero_optimization": {"stage": 2}}}, ["deepspeed is not honoured"]),
        ("trl_text", {"label_smoothing_factor": 0.1, "optim": "lomo"}, ["label_smoothing_factor", "optimizer lomo"]),
        ("trl_completion", {"eval_strategy": "epoch"}, ["needs test_split_size"]),
        ("llamafactory_alpaca", {"template": "qwen3_vl"}, ["template qwen3_vl is not one of"]),
        ("llamafactory_alpaca", {"template": None}, ["no template"]),
        ("llamafactory_alpaca", {"dataset": "other"}, ["dataset other: not in ./dataset_info.json"]),
        ("llamafactory_alpaca", {"finetuning_type": "freeze", "neat_packing": True}, ["freeze is neither", "packing"]),
        ("llamafactory_alpaca", {"use_galore": True}, ["use_galore is not honoured", "optimizer galore_adamw"]),
        ("llamafactory_alpaca", {"do_eval": True}, ["an evaluation after training alone"]),
    ],
)
def test_every_key_that_cannot_be_honoured_is_named_at_once(folder, name, changes, reasons):
    with pytest.raises(VramwiseError) as refused:
        prepared(changed(folder, name, **changes), random_weights=False)
    said = str(refused.value)
    assert all(reason in said for reason in reasons), said
    assert "cannot honour" in refused.value.sentence
    install = {"trl": "pip install trl peft", "llamafactory": "pip install llamafactory"}[cases.trainer_of(name)]
    assert f"let the file's own trainer train it: {install}" in said


def test_the_file_says_which_line(folder):
    path = changed(folder, "trl_text", shuffle_dataset=True)
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if "shuffle_dataset" in text)
    with pytest.raises(VramwiseError, match=rf"changed.yml:{line}: shuffle_dataset is not honoured"):
        prepared(path, random_weights=False)


@pytest.mark.parametrize("keys", [{"kind": "dpo", "beta": 0.1}, {}])
def test_only_supervised_training(folder, keys):
    trainer = {"target": {"trainer": f"trl:{keys.pop('kind', 'reward')}"}}
    with pytest.raises(VramwiseError, match="only `trl sft` is trained"):
        prepared(changed(folder, "trl_text", **keys), random_weights=False, **trainer)


def test_plain_arguments_are_trained_as_run_clm_does(folder):
    """Texts joined and cut into blocks, the first twentieth held out."""
    rows = [{"text": f"one two {'three ' * 10}"} for _ in range(40)]
    (folder / "texts.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {**cases.COMMON, "model_name_or_path": "model", "output_dir": "out/plain"}
    config |= {"train_file": "texts.json", "block_size": 32, "warmup_ratio": 0.1}
    path = folder / "arguments.json"
    path.write_text(json.dumps(config))
    trainer = loaded(path, target={"versions": ("transformers==5.6.0",)})
    tokens = len(trainer.processing_class(rows[0]["text"])["input_ids"])
    assert trainer.train_dataset.lengths() == [32] * (38 * tokens // 32)
    assert trainer.args.warmup_steps == 0.1
    path.write_text(json.dumps({key: value for key, value in config.items() if key != "train_file"}))
    with pytest.raises(VramwiseError, match="no train_file"):
        prepared(path, random_weights=False)


def test_what_a_file_sets_in_its_env_for_the_allocator_counts(folder):
    path = changed(folder, "trl_text", env={"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"})
    plan = prepared(path, random_weights=False).plan
    assert plan.allocator == "max_split_size_mb:64"
    assert plan.environment["PYTORCH_ALLOC_CONF"] == "max_split_size_mb:64"


@pytest.mark.parametrize("name", ["trl_text", next(name for name in cases.CASES if name.startswith("llamafactory"))])
def test_a_rate_in_the_spelling_that_yaml_takes_for_a_text(folder, name):
    path = changed(folder, name, learning_rate=1e-05)
    assert "1e-05" in path.read_text()
    run = run_of(prepared(path, random_weights=False).plan)
    assert run.config.get("arguments")["learning_rate"] == 1e-05


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"columns": [1]}, "columns"),
        ({"tags": 5}, "tags"),
        ({"columns": {"prompt": ["a"]}}, "columns"),
        ({"split": 1}, "split"),
    ],
)
def test_a_table_of_datasets_from_a_stranger(folder, entry, key):
    (folder / "odd").mkdir(exist_ok=True)
    (folder / "odd" / "dataset_info.json").write_text(json.dumps({"odd": {"file_name": "x.json", **entry}}))
    with pytest.raises(VramwiseError, match=rf"dataset odd: {key} of dataset_info.json: texts are expected"):
        prepared(changed(folder, "llamafactory_alpaca", dataset="odd", dataset_dir="odd"), random_weights=False)


@pytest.mark.parametrize("rows", [[1, 2], [{"instruction": 5, "input": [], "output": {"a": 1}}], [{}], [], {"a": 1}])
def test_rows_of_a_stranger_are_refused_in_a_sentence(folder, rows):
    (folder / "strange").mkdir(exist_ok=True)
    (folder / "strange" / "x.json").write_text(json.dumps(rows))
    (folder / "strange" / "dataset_info.json").write_text(json.dumps({"odd": {"file_name": "x.json"}}))
    path = changed(folder, "llamafactory_alpaca", dataset="odd", dataset_dir="strange")
    with pytest.raises(VramwiseError):
        train_here(path, random_weights=False)
