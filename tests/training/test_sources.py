"""A config is only a file: no dataset that it names runs code, wherever it lies and whoever would read it."""

import json
import pickle
import sys
from types import SimpleNamespace

import pytest

from installed import need
from tiny_runs import make_folder, prepared, write_config
from vramwise.errors import VramwiseError
from vramwise.training.sources import refuse_sources, source_problems
from vramwise.training.worker.rows import read_rows, refuse_reader

REFUSED = [
    {"path": "pandas", "data_files": "x*.pkl"},
    {"path": "pandas", "data_files": "x.parquet"},
    {"path": "pandas"},
    {"path": "webdataset", "data_files": "x.tar"},
    {"path": "generator"},
    {"path": "imdb"},
    {"path": "script.py"},
    {"path": "owner/script.py"},
    {"path": "x.pkl"},
    {"path": "here.pkl"},
    {"path": "here.pkl", "ds_type": "pandas"},
    {"path": "samples.jsonl", "ds_type": "pandas"},
    {"path": "samples.jsonl", "ds_type": ["json"]},
    {"path": "json", "data_files": "https://example.com/x.pkl"},
    {"path": "json", "data_files": "https://example.com/x.pickle?download=true"},
    {"path": "json", "data_files": ["a.json", "b.pt"]},
    {"path": "json", "data_files": {"train": ["a.json"], "test": "b.py"}},
    {"path": "json", "data_files": "x.pkl.gz"},
    {"path": "owner/name", "data_files": "data/x.PKL"},
    {"path": "https://example.com/x.jsonl"},
    {"path": "hf://datasets/owner/name/x.pkl"},
    {"path": "zip://x.pkl::https://example.com/a.zip"},
    {"path": ["owner/name"]},
]
READ = [
    {"path": "samples.jsonl"},
    {"path": "json", "data_files": "samples.jsonl"},
    {"path": "json", "data_files": "https://example.com/x.jsonl?download=true"},
    {"path": "csv", "data_files": "x.csv.gz"},
    {"path": "text", "data_files": "x.txt"},
    {"path": "arrow", "data_files": "x.arrow"},
    {"path": "owner/name"},
    {"path": "owner/name.v2"},
    {"path": "owner/name", "data_files": "data/train-*"},
    {"path": "owner/name", "data_files": "data/train-*.parquet"},
    {"path": "pandas-folder"},
    {"path": "gone.jsonl"},
]


@pytest.fixture
def folder(tmp_path):
    made = make_folder(tmp_path, samples=4)
    (made / "here.pkl").write_bytes(b"")
    (made / "pandas-folder").mkdir()
    return made


@pytest.mark.parametrize("block", REFUSED, ids=json.dumps)
def test_refused_before_anything_is_loaded(folder, block):
    assert list(source_problems(block, folder))
    with pytest.raises(VramwiseError):
        read_rows(block, folder)
    config = write_config(folder, datasets=[{**block, "type": "completion"}])
    with pytest.raises(VramwiseError, match=r"config\.yml:"):
        prepared(config)


@pytest.mark.parametrize("block", REFUSED, ids=json.dumps)
@pytest.mark.usefixtures("everything_installed")
def test_refused_for_axolotl_too(folder, block):
    run = prepared(write_config(folder)).run
    values = {**run.config.values, "datasets": [block]}
    config = type(run.config)(run.config.document, values, {})
    with pytest.raises(VramwiseError, match=r"config\.yml"):
        refuse_sources(config)


@pytest.mark.parametrize("block", READ, ids=json.dumps)
def test_data_is_data(folder, block):
    assert list(source_problems(block, folder)) == []


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("where", ["packaged", "folder-of-its-name", "by-type"])
def test_a_pickle_is_never_opened(folder, monkeypatch, where):
    need("datasets")
    proof = folder / "it-ran"
    home = folder / "pandas" if where == "folder-of-its-name" else folder
    home.mkdir(exist_ok=True)
    (home / "x1.pkl").write_bytes(pickle.dumps(Bomb(str(proof))))
    monkeypatch.chdir(folder)
    block = (
        {"path": "pandas", "data_files": "x*.pkl"} if where != "by-type" else {"path": "x1.pkl", "ds_type": "parquet"}
    )
    if where == "folder-of-its-name":
        block.pop("data_files")
    with pytest.raises(VramwiseError):
        read_rows(block, folder)
    assert not proof.exists()


def test_the_script_of_a_dataset_is_not_run(folder, monkeypatch):
    need("datasets")
    monkeypatch.setenv("HF_DATASETS_TRUST_REMOTE_CODE", "1")
    proof = folder / "it-ran"
    (folder / "mine").mkdir()
    (folder / "mine" / "mine.py").write_text(f"open({str(proof)!r}, 'w')\n")
    with pytest.raises(VramwiseError):
        read_rows({"path": "mine"}, folder)
    assert not proof.exists()


def test_an_older_package_is_told_to_trust_nothing(folder, monkeypatch):
    """Before version 4 a variable in the environment could allow scripts, and the pandas reader unpickled."""
    asked = []

    def load_dataset_builder(path, data_files=None, trust_remote_code=None):
        asked.append(trust_remote_code)
        reader = type("Pandas", (), {"__module__": "datasets.packaged_modules.pandas.pandas"})
        return reader()

    package = SimpleNamespace(
        load_dataset_builder=load_dataset_builder, load_dataset=lambda *_, **__: asked.append("read")
    )
    monkeypatch.setitem(sys.modules, "datasets", package)
    monkeypatch.setattr("vramwise.training.worker.rows.require", lambda *_: None)
    with pytest.raises(VramwiseError, match="its format is pandas, not one of json"):
        read_rows({"path": "owner/name"}, folder)
    assert asked == [False]


def test_the_reader_is_judged_by_its_own_module():
    script = type("Json", (), {"__module__": "datasets_modules.datasets.evil.evil"})
    with pytest.raises(VramwiseError, match="is not read"):
        refuse_reader("owner/name", script())
    refuse_reader("owner/name", type("Json", (), {"__module__": "datasets.packaged_modules.json.json"})())


def test_text_and_arrow_are_read_where_they_are_named(folder):
    need("datasets")
    import datasets

    (folder / "lines.txt").write_text("one\ntwo\n")
    datasets.Dataset.from_list([{"text": "three"}]).save_to_disk(str(folder / "saved"))
    [arrow] = (folder / "saved").glob("*.arrow")
    assert read_rows({"path": "lines.txt", "ds_type": "text"}, folder) == [{"text": "one"}, {"text": "two"}]
    assert read_rows({"path": str(arrow), "ds_type": "arrow"}, folder) == [{"text": "three"}]
    with pytest.raises(VramwiseError, match="ds_type may name one"):
        read_rows({"path": "lines.txt"}, folder)


@pytest.mark.skipif(sys.platform == "win32", reason="a device of Unix")
def test_a_device_is_a_sentence(folder):
    with pytest.raises(VramwiseError, match="is a device or a pipe"):
        read_rows({"path": "/dev/zero"}, folder)
