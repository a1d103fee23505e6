"""A checkpoint counts only when it is whole, and only this run's own are ever deleted. No torch needed."""

import json

import pytest

from vramwise.training.checkpoints import (
    ASIDE,
    MARKER,
    begin,
    checkpoints,
    faults,
    final_path,
    finish,
    give_up,
    is_complete,
    latest_whole,
    read_marker,
    rotate,
)

FILES = ("model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json", "config.json")


def save(root, step, *, run="", **more):
    folder = begin(root, step)
    for name in FILES:
        (folder / name).write_text(f"{name} of step {step}")
    return finish(root, step, run=run, **more)


def of_another_trainer(root, step):
    folder = root / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text("{}")
    (folder / "model.safetensors").write_text("theirs")
    return folder


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(root):
    return [folder.name for folder in checkpoints(root)]


def test_the_last_whole_one_by_number_not_by_name(tmp_path):
    for step in (5, 10, 100):
        save(tmp_path, step)
    of_another_trainer(tmp_path, 200)
    (tmp_path / "checkpoint-best").mkdir()
    assert latest_whole(tmp_path).folder == str(tmp_path / "checkpoint-100")
    assert latest_whole(tmp_path / "nothing").folder is None


def test_a_save_that_is_cut_short_never_has_a_name_and_the_next_clears_it(tmp_path):
    save(tmp_path, 5)
    (begin(tmp_path, 10) / "model.safetensors").write_text("half")
    assert names(tmp_path) == ["checkpoint-5"]
    folder = begin(tmp_path, 10)
    assert list(folder.iterdir()) == []
    give_up(tmp_path)
    assert not (tmp_path / ASIDE).exists()


def test_rotation_keeps_the_newest_and_the_best(tmp_path):
    for step in (5, 10, 15, 20):
        save(tmp_path, step)
    rotate(tmp_path, keep=2, always=[str(tmp_path / "checkpoint-5")])
    assert names(tmp_path) == ["checkpoint-5", "checkpoint-15", "checkpoint-20"]


@pytest.mark.parametrize("keep", [None, 1, 2])
def test_rotation_leaves_what_this_run_did_not_write(tmp_path, keep):
    theirs = [of_another_trainer(tmp_path, step) for step in (5, 500)]
    (tmp_path / "checkpoint-7").mkdir()
    earlier = [save(tmp_path, step, run="earlier") for step in (3, 4)]
    before = [contents(folder) for folder in (*theirs, *earlier)]
    for step in (8, 9, 10):
        save(tmp_path, step, run="now")
        rotate(tmp_path, keep=keep, run="now")
    assert [contents(folder) for folder in (*theirs, *earlier)] == before
    assert (tmp_path / "checkpoint-7").is_dir()
    left = [folder for folder in checkpoints(tmp_path) if (mark := read_marker(folder)) and mark.run == "now"]
    assert len(left) == (keep or 3)


@pytest.mark.parametrize("earlier_run", [False, True])
def test_a_name_that_is_taken_is_not_written_over(tmp_path, earlier_run):
    theirs = save(tmp_path, 5, run="earlier") if earlier_run else of_another_trainer(tmp_path, 5)
    before = contents(theirs)
    assert save(tmp_path, 5, run="now").name == "checkpoint-5-vramwise"
    assert save(tmp_path, 5, run="later").name == "checkpoint-5-vramwise-2"
    assert contents(theirs) == before
    assert latest_whole(tmp_path).folder == str(tmp_path / "checkpoint-5-vramwise-2")
    assert final_path(tmp_path, 5, run="now").name == "checkpoint-5-vramwise"


def test_a_run_that_was_set_back_replaces_its_own(tmp_path):
    first = read_marker(save(tmp_path, 5, run="now")).saved_at_ns
    assert save(tmp_path, 5, run="now").name == "checkpoint-5"
    assert read_marker(tmp_path / "checkpoint-5").saved_at_ns > first
    assert names(tmp_path) == ["checkpoint-5"]
    assert not (tmp_path / ASIDE).exists()


def test_checkpoints_of_an_earlier_longer_run_are_the_older_ones(tmp_path):
    for step in (500, 1000, 10, 20):
        save(tmp_path, step)
    assert latest_whole(tmp_path).folder == str(tmp_path / "checkpoint-20")
    rotate(tmp_path, keep=2)
    assert names(tmp_path) == ["checkpoint-10", "checkpoint-20"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["cut", "emptied", "gone", "changed"])
def test_a_damaged_one_is_passed_over_and_named(tmp_path, name, damage):
    save(tmp_path, 5)
    path = save(tmp_path, 10) / name
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": data[:-3], "emptied": b"", "changed": b"?" + data[1:]}[damage])
    found = latest_whole(tmp_path)
    assert found.folder == str(tmp_path / "checkpoint-5")
    [said] = found.passed_over
    assert said.startswith(f"checkpoint-10 is not whole: {name} ")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"step": "x"}', '{"step": 1, "files": {"a": 3}}', "[" * 99999])
def test_a_damaged_marker_makes_no_whole_checkpoint(tmp_path, text):
    save(tmp_path, 5)
    (save(tmp_path, 10) / MARKER).write_text(text)
    assert latest_whole(tmp_path).folder == str(tmp_path / "checkpoint-5")
    rotate(tmp_path, keep=1)
    assert names(tmp_path) == ["checkpoint-5", "checkpoint-10"]


def test_nothing_whole_is_nothing(tmp_path):
    (save(tmp_path, 5) / "optimizer.pt").unlink()
    found = latest_whole(tmp_path)
    assert found.folder is None
    assert found.passed_over == ["checkpoint-5 is not whole: optimizer.pt is missing"]


def test_a_damaged_one_goes_before_a_whole_older_one(tmp_path):
    save(tmp_path, 5)
    (save(tmp_path, 10) / "optimizer.pt").write_text("")
    save(tmp_path, 6)
    rotate(tmp_path, keep=2)
    assert names(tmp_path) == ["checkpoint-5", "checkpoint-6"]


def test_the_marker_of_an_earlier_version_listed_no_files(tmp_path):
    folder = of_another_trainer(tmp_path, 5)
    (folder / MARKER).write_text(json.dumps({"step": 5, "saved_at_ns": 3}))
    assert is_complete(folder)
    assert faults(folder) == []
    assert latest_whole(tmp_path).folder == str(folder)


def test_everything_is_on_the_disk_before_the_marker(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", lambda file: synced.append(__import__("os").readlink(f"/proc/self/fd/{file}")))
    save(tmp_path, 5)
    kinds = [path.rpartition("/")[2] for path in synced]
    assert set(kinds[: len(FILES)]) == set(FILES)
    marker = next(at for at, kind in enumerate(kinds) if kind.startswith(f".{MARKER}"))
    assert marker > max(kinds.index(name) for name in FILES)
    assert synced[-1] == str(tmp_path)
