"""Models that come with code: never run unasked, and confined where the user lets it run."""

import json
import sys

import pytest
from click.testing import CliRunner
from own_code_model import ATTEMPTS, write_model

from installed import needs
from vramwise.cli.main import cli
from vramwise.errors import VramwiseError
from vramwise.models import tracing
from vramwise.models.known import read_model
from vramwise.models.recorder.own_code import class_of

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="such code is only run on Linux")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(tracing.SWITCH, raising=False)
    remembering = tracing._model, tracing.installed
    for function in remembering:
        function.cache_clear()
    yield
    for function in remembering:
        function.cache_clear()


@pytest.fixture
def no_child(monkeypatch):
    monkeypatch.setattr(tracing, "installed", lambda: ("5.23.0", "2.13.0"))
    monkeypatch.setattr(tracing, "_run_child", lambda asked: pytest.fail("code was run"))


def test_a_prediction_never_runs_code_of_the_model(tmp_path, no_child):
    with pytest.raises(VramwiseError, match="vramwise trace FOLDER --trust-remote-code"):
        read_model(write_model(tmp_path / "model") / "config.json")


def test_a_trace_is_refused_without_the_users_word(tmp_path, no_child):
    done = CliRunner().invoke(cli, ["trace", str(write_model(tmp_path / "model"))])
    assert isinstance(done.exception, VramwiseError)
    assert "--trust-remote-code" in str(done.exception)


@needs("torch", "transformers")
@LINUX
def test_trusted_code_is_traced_confined_and_the_trace_is_used(tmp_path, monkeypatch):
    folder = write_model(tmp_path / "model", *ATTEMPTS)
    before = sorted(path.name for path in folder.iterdir())
    out = tmp_path / "trace.json"
    done = CliRunner().invoke(cli, ["trace", str(folder), "--trust-remote-code", "--out", str(out)])
    assert done.exception is None, done.exception
    assert sorted(path.name for path in folder.iterdir()) == before
    assert json.loads(out.read_text())["model_type"] == "made_up"
    monkeypatch.setattr(tracing, "_run_child", lambda asked: pytest.fail("code was run again"))
    assert read_model(folder / "config.json").trace is not None
    # other code is another model
    (folder / "modeling_made_up.py").write_text("raise SystemExit")
    tracing._model.cache_clear()
    with pytest.raises(VramwiseError, match="--trust-remote-code"):
        read_model(folder / "config.json")


@pytest.mark.parametrize("named", ["owner/name--modeling.Model", "../modeling.Model", "os.path..x", None, 3])
def test_code_of_other_places_is_refused(tmp_path, named):
    with pytest.raises(LookupError):
        class_of({"auto_map": {"AutoConfig": named}}, "AutoConfig", tmp_path)


_FLOOD = """
import os

while True:
    for place in range(3, 12):
        try:
            os.write(place, b" " * 2**20)
        except OSError:
            pass
"""


@needs("torch", "transformers")
@LINUX
def test_code_that_answers_without_end_is_stopped(tmp_path):
    folder = write_model(tmp_path / "model")
    (folder / "modeling_made_up.py").write_text(_FLOOD)
    done = CliRunner().invoke(cli, ["trace", str(folder), "--trust-remote-code"])
    assert "larger than 16 MiB" in str(done.exception)
