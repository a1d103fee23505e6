"""A checkpoint counts only when it is whole. No torch needed."""

import errno

import pytest

from vramwise.errors import VramwiseError
from vramwise.training.checkpoints import (
    begin,
    checkpoints,
    is_complete,
    latest_complete,
    latest_of_trainer,
    mark_complete,
    rotate,
    saving,
)


def save(root, step, *, whole=True):
    folder = root / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_text("weights")
    if whole:
        mark_complete(folder, step=step)
    return folder


def test_the_last_whole_one_by_number_not_by_name(tmp_path):
    for step in (5, 10, 100):
        save(tmp_path, step)
    save(tmp_path, 200, whole=False)
    (tmp_path / "checkpoint-best").mkdir()
    assert latest_complete(tmp_path) == str(tmp_path / "checkpoint-100")
    assert latest_complete(tmp_path / "nothing") is None


def test_a_checkpoint_of_another_trainer_counts_by_its_state(tmp_path):
    for step in (5, 10, 20):
        save(tmp_path, step, whole=False)
    for step in (5, 10):
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text("{}")
    assert latest_of_trainer(tmp_path) == str(tmp_path / "checkpoint-10")
    assert latest_complete(tmp_path) is None
    assert latest_of_trainer(tmp_path / "nothing") is None


def test_saving_again_under_the_same_name_starts_clean(tmp_path):
    folder = save(tmp_path, 5)
    begin(folder)
    assert not is_complete(folder)
    assert not (folder / "model.safetensors").exists()


def test_rotation_keeps_the_newest_and_the_best_and_clears_halves(tmp_path):
    for step in (5, 10, 15, 20):
        save(tmp_path, step)
    save(tmp_path, 7, whole=False)
    rotate(tmp_path, keep=2, always=[str(tmp_path / "checkpoint-5")])
    assert [folder.name for folder in checkpoints(tmp_path)] == ["checkpoint-5", "checkpoint-15", "checkpoint-20"]


def test_checkpoints_of_an_earlier_longer_run_are_the_older_ones(tmp_path):
    for step in (500, 1000):
        save(tmp_path, step)
    for step in (10, 20):
        save(tmp_path, step)
    assert latest_complete(tmp_path) == str(tmp_path / "checkpoint-20")
    rotate(tmp_path, keep=2)
    assert [folder.name for folder in checkpoints(tmp_path)] == ["checkpoint-10", "checkpoint-20"]


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def save_cut_short():
        with saving(tmp_path, "checkpoint-3"):
            raise RuntimeError("unexpected pos 5371136 vs 5371024")

    with pytest.raises(RuntimeError, match="unexpected pos"):
        save_cut_short()
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: Full())
    with pytest.raises(VramwiseError, match="checkpoint-3 cannot be saved: no space left in"):
        save_cut_short()


def test_no_limit_deletes_nothing_whole(tmp_path):
    for step in (5, 10):
        save(tmp_path, step)
    rotate(tmp_path, keep=None)
    assert len(checkpoints(tmp_path)) == 2
