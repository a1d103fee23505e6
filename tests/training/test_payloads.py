"""Checkpoints whose files would run code when unpickled, or hold something else than a training's state."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'vramwise[train]'")
pytest.importorskip("transformers", reason="training needs transformers: pip install 'vramwise[train]'")

from tiny_runs import make_folder, prepared, train_here, write_config  # noqa: E402
from vramwise.errors import VramwiseError  # noqa: E402
from vramwise.training.checkpoints import (  # noqa: E402
    MARKER,
    latest_whole,
    read_marker,
    seal,
)
from vramwise.training.worker.payloads import refuse_payloads, resuming  # noqa: E402

SOURCE = Path(__file__).parent.parent.parent / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


class Payload:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = make_folder(tmp_path_factory.mktemp("payloads"), samples=8)
    config = write_config(folder, save_steps=1, save_strategy=None, max_steps=2, save_total_limit=1)
    train_here(config)
    return config, Path(latest_whole(folder / "out").folder)


@pytest.fixture
def changed(trained):
    """Change a file of the checkpoint and seal it again, as somebody would who wants it to be loaded."""
    _config, checkpoint = trained
    marker = read_marker(checkpoint)
    kept = {path: path.read_bytes() for path in checkpoint.iterdir()}

    def change(name, write):
        write(checkpoint / name)
        seal(checkpoint, step=marker.step, run=marker.run, settings=marker.settings)
        return checkpoint / name

    yield change
    for path in checkpoint.iterdir():
        path.unlink()
    for path, data in kept.items():
        path.write_bytes(data)


def resume(trained):
    config, _ = trained
    plan = prepared(config, resume=True).plan
    assert plan.resume_from is not None
    train_here(config, plan=plan)


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth", "pytorch_model.bin"])
def test_a_file_that_would_run_code_is_refused_in_one_sentence(trained, changed, tmp_path, name):
    path = changed(name, lambda path: torch.save({"state": Payload(tmp_path / "ran")}, path))
    with pytest.raises(VramwiseError) as caught:
        resume(trained)
    assert str(caught.value).startswith(f"{path} is refused: it names posix.mkdir, and a checkpoint may hold only ")
    assert not (tmp_path / "ran").exists()


@pytest.mark.nightly  # by day the same file is refused in this process
def test_from_the_command_line(trained, changed, tmp_path):
    path = changed("optimizer.pt", lambda path: torch.save(Payload(tmp_path / "ran"), path))
    config, _ = trained
    words = [sys.executable, "-m", "vramwise", "train", str(config), "--random-weights", "--resume", "--force"]
    done = subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 2, done.stderr
    assert f"error: {path} is refused: it names posix.mkdir" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"PK\x03\x04 no zip"),
        lambda path: path.write_bytes(pickle.dumps({"a": 1}, protocol=2)),
        lambda path: torch.save([1, 2], path),
        lambda path: torch.save({"state": {}, "param_groups": []}, path),
        lambda path: torch.save("text", path),
    ],
    ids=["empty", "no zip", "a plain pickle", "a list", "an empty state", "a text"],
)
def test_something_else_than_an_optimizer(trained, changed, write):
    changed("optimizer.pt", write)
    with pytest.raises(VramwiseError, match=r"checkpoint-2.* (is refused|cannot be resumed): .*--fresh"):
        resume(trained)


@pytest.mark.parametrize("name", ["scheduler.pt", "rng_state.pth"])
def test_something_else_in_other_files(trained, changed, name):
    changed(name, lambda path: torch.save([1, 2], path))
    config, _ = trained
    with pytest.raises(VramwiseError, match="cannot be resumed"):
        train_here(config, plan=_longer(config))


def _longer(config):
    """Two more steps, so that the random state is taken over too."""
    text = config.read_text()
    config.write_text(text.replace("max_steps: 2", "max_steps: 4"))
    try:
        return prepared(config, resume=True).plan
    finally:
        config.write_text(text)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"global_step": "x"}', '{"log_history": 3}', '{"odd": 1}', "[" * 9999]
)
def test_a_state_that_is_none(trained, changed, text):
    changed("trainer_state.json", lambda path: path.write_text(text))
    with pytest.raises(VramwiseError, match="cannot be resumed"):
        resume(trained)


def test_a_checkpoint_as_it_was_saved_is_not_refused(trained):
    _config, checkpoint = trained
    assert {"optimizer.pt", "scheduler.pt", "rng_state.pth"} <= {path.name for path in checkpoint.iterdir()}
    refuse_payloads(str(checkpoint))
    refuse_payloads(None)
    assert (checkpoint / MARKER).is_file()


def test_out_of_memory_while_resuming_stays_what_it_is():
    with pytest.raises(RuntimeError, match="out of memory"), resuming("checkpoint-1"):
        raise RuntimeError("CUDA out of memory. Tried to allocate 1.50 GiB.")


def test_another_trainers_process_asks_too(tmp_path, capsys):
    from plans import make_plan

    from vramwise.training.hosted.entries import enter
    from vramwise.training.plan import write_plan

    checkpoint = tmp_path / "checkpoint-2"
    checkpoint.mkdir()
    (checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": 2}))
    torch.save(Payload(tmp_path / "ran"), checkpoint / "optimizer.pt")
    plan = write_plan(make_plan(tmp_path, engine="llamafactory", resume_from=str(checkpoint)))
    assert enter(["llamafactory", str(plan), "file.yml"]) == 2
    assert "optimizer.pt is refused: it names posix.mkdir" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
