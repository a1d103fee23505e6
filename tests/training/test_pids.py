"""The files in which workers announce themselves, among files that are no worker's."""

import os
import sys

import pytest
from plans import make_plan

from vramwise.training.guard import oom
from vramwise.training.parent.child import PIDS, Signals, announce, announced_pids, clear_pids
from vramwise.training.parent.supervise import supervise


@pytest.mark.parametrize("name", ["²", "٣", "0", "-1", "007", "1" * 5000, "notes.txt"])
def test_other_names_are_no_workers(tmp_path, name):
    folder = tmp_path / PIDS
    announce(tmp_path)
    try:
        (folder / name).touch()
    except OSError:
        pytest.skip("this file system has no such name")
    assert announced_pids(folder) == [os.getpid()]
    clear_pids(folder)
    assert [path.name for path in folder.iterdir()] == [name]


def test_a_folder_or_link_named_like_a_process_stays(tmp_path):
    folder = tmp_path / PIDS
    (folder / "1").mkdir(parents=True)
    (tmp_path / "theirs").touch()
    (folder / "2").symlink_to(tmp_path / "theirs")
    assert announced_pids(folder) == []
    clear_pids(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]


def test_a_link_to_another_folder_is_not_followed(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "123").touch()
    (tmp_path / PIDS).symlink_to(tmp_path / "theirs")
    clear_pids(tmp_path / PIDS)
    assert (tmp_path / "theirs" / "123").exists()


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / PIDS).write_text("x")
    announce(tmp_path)
    assert announced_pids(tmp_path / PIDS) == []
    assert Signals(tmp_path / PIDS).run([sys.executable, "-c", "pass"], os.environ) == 0
    assert (tmp_path / PIDS).read_text() == "x"


def test_a_run_beside_odd_names(tmp_path):
    (tmp_path / PIDS).mkdir()
    for path in (tmp_path / PIDS / "²", tmp_path / "oom-².json"):
        path.touch()
    assert supervise(make_plan(tmp_path), say=print, command=lambda *_: [sys.executable, "-c", "pass"]) == 0
    assert (tmp_path / PIDS / "²").exists()
    oom.forget_records(tmp_path, 1)
    assert (tmp_path / "oom-².json").exists()
