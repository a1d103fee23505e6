"""Whose file is this? What is not a training config of ours gets one line, no finding, no edit, exit 0."""

from pathlib import Path

import pytest

from installed import needs_corpus
from vramwise.documents.document import parse_document
from vramwise.opening.options import Options
from vramwise.opening.sources import NotOurs
from vramwise.opening.subject import open_subject
from vramwise.trainers.recognise import Foreign, recognise

CORPUS = Path(__file__).parent.parent.parent / "shared" / "corpus"
FILES = {
    "mkdocs.yml": ("mkdocs", "site_name: docs\nplugins:\n  - search\n  - tags\ntheme:\n  name: material\n"),
    "compose.yml": ("compose", "services:\n  train:\n    image: nvidia/cuda\n    environment:\n      bf16: 'true'\n"),
    "workflow.yml": (
        "workflow",
        "name: tests\non: [push]\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps: []\n",
    ),
    "deployment.yaml": (
        "kubernetes",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: x\nspec:\n  replicas: 1\n",
    ),
    "accelerate.yaml": (
        "accelerate",
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n",
    ),
    "ds.yaml": ("deepspeed", "zero_optimization:\n  stage: 3\ntrain_micro_batch_size_per_gpu: auto\n"),
    "chat.yaml": ("llamafactory-other", "model_name_or_path: m\ntemplate: llama3\ninfer_backend: huggingface\n"),
    "merged.yaml": ("llamafactory-other", "model_name_or_path: m\ntemplate: llama3\nexport_dir: merged\n"),
    "megatron.yaml": (
        "llamafactory-megatron",
        "model_name_or_path: m\nstage: sft\ndo_train: true\nfinetuning_type: full\ntensor_model_parallel_size: 2\n",
    ),
    "v1.yaml": ("llamafactory-v1", "model: m\nmodel_class: llm\nmicro_batch_size: 1\ncutoff_len: 2048\n"),
    "filter.yaml": ("filter", "model_name_or_path: m\ndataset_name: d\npass_rate_min: 0.2\ntorch_dtype: bfloat16\n"),
    "merge.yml": ("mergekit", "base_model: m\nmerge_method: ties\nmodels:\n  - model: a\n"),
    "card.yml": ("other", "base_model: m\ndatasets:\n  - a\ntags: [x]\nlicense: mit\n"),
    "params.yaml": ("other", "learning_rate: 5e-5\nbatch_size: 8\nmicro_batch_size: 2\n"),
    "own.yaml": ("other", "base_model: m\nadapter: checkpoints/one\nlearning_rate: 1e-4\n"),
    "own-too.yaml": ("other", "base_model: m\nepochs: 3\nlearning_rate: 1e-4\ntrain_file: a\nmax_len: 512\n"),
    "tune.yaml": ("torchtune", "model:\n  _component_: torchtune.models.llama3.llama3_8b\nbatch_size: 2\n"),
    "verl.yaml": ("verl", "actor_rollout_ref:\n  model:\n    path: m\ndata: {}\n"),
    "swift.yaml": ("ms-swift", "train_type: lora\nmodel: m\nlora_rank: 8\n"),
    "anything.yml": ("other", "a: 1\nplugins: []\n"),
    "tags.yml": ("mkdocs", "site_name: x\nmarkdown_extensions:\n  - a: !!python/name:x.y\n"),
    "several.yaml": ("kubernetes", "apiVersion: v1\nkind: Service\n---\napiVersion: v1\nkind: Pod\n"),
    "playbook.yml": ("other", "- hosts: all\n  tasks: []\n"),
    "chart.yaml": ("other", "image: {{ .Values.image }}\nname: {{ x }}: 1\n"),
}


@pytest.mark.parametrize("name", FILES)
def test_recognised_by_its_keys(name, tmp_path):
    kind, text = FILES[name]
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(NotOurs) as caught:
        open_subject(path, Options(ours_only=True))
    assert caught.value.foreign.kind == kind


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "words", [("check",), ("check", "--fix"), ("fix",), ("fix", "--unsafe-fixes"), ("fix", "--diff")]
)
def test_left_alone(vramwise, tmp_path, name, words):
    path = tmp_path / name
    path.write_text(FILES[name][1])
    done = vramwise(*words, path, "--gpu", "rtx-4090", "--ours-only")
    assert done.exit_code == 0
    assert "skipped" in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert path.read_text() == FILES[name][1]


def test_in_a_folder_they_are_counted(vramwise, tmp_path):
    for name, (_, text) in FILES.items():
        (tmp_path / name).write_text(text)
    done = vramwise("check", tmp_path)
    assert done.exit_code == 0
    assert done.output.strip() == f"{len(FILES)} files skipped: not training configs"
    (tmp_path / "mine.yml").write_text("base_model: m\nmicro_batch_size: 0\n")
    done = vramwise("check", tmp_path)
    assert done.exit_code == 1
    assert f"{len(FILES)} files skipped" in done.output


def test_what_cannot_be_read_is_an_error_where_it_is_named_and_nothing_speaks_for_another_tool(vramwise, tmp_path):
    path = tmp_path / "x.yml"
    path.write_text("a: [1\n")
    assert vramwise("check", path).exit_code == 2
    assert vramwise("check", path, "--ours-only").exit_code == 0
    assert vramwise("check", tmp_path).exit_code == 0
    path.write_text("base_model: m\nmicro_batch_size: [1\n")
    assert vramwise("check", tmp_path).exit_code == 2
    assert vramwise("check", path, "--ours-only").exit_code == 2


@pytest.mark.parametrize("verb", ["predict", "train"])
def test_other_verbs_say_what_it_is(vramwise, tmp_path, verb):
    path = tmp_path / "accelerate.yaml"
    path.write_text(FILES["accelerate.yaml"][1])
    done = vramwise(verb, path)
    assert done.exit_code == 2
    assert "an accelerate config" in str(done.exception)


def test_insisting_judges_all_the_same(vramwise, tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(FILES["params.yaml"][1])
    done = vramwise("check", path, "--trainer", "axolotl")
    assert done.exit_code == 1
    assert "batch-size-set" in done.output
    done = vramwise("check", path, "--trainer", "nobody")
    assert done.exit_code == 2
    assert "unknown trainer 'nobody'" in str(done.exception)


def test_a_training_config_without_a_model_is_still_ours():
    text = "sequence_len: 2048\nmicro_batch_size: 2\nsample_packing: true\n"
    assert not isinstance(recognise(parse_document("x.yml", text.encode()).values), Foreign)


@needs_corpus
@pytest.mark.parametrize("folder", ["trl"])
def test_other_peoples_files(vramwise, folder, tmp_path):
    texts = {path.name: path.read_text() for path in (CORPUS / folder).glob("*.y*ml")}
    if folder == "trl":  # its training files are ours: tests/trainers/test_trl_values.py
        texts = {name: text for name, text in texts.items() if "accelerate" in name or "filter" in name}
        assert len(texts) == 17
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    done = vramwise("fix", tmp_path, "--unsafe-fixes")
    assert done.exit_code == 0
    assert f"{len(texts)} files skipped" in done.output
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == texts
    found = {name: recognise(parse_document(name, text.encode()).values) for name, text in texts.items()}
    assert [name for name, whose in found.items() if whose.kind == "other"] in (
        [],
        ["v1__train_lora__export_lora.yaml"],
    )
