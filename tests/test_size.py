"""The tree does not grow: the lines of each room of `src/vramwise`, and of all of it, stay below a number.

Whoever needs more removes something. An issue that builds in a room may raise that room's number, in the same commit and
with the reason. The number of the whole tree is not raised. Only Python counts; lines are never joined, and code never
moves into data, for its sake. `python scripts/room_sizes.py` prints what there is.
"""

import shutil

import pytest

import room_sizes

MOST_LINES = 92_000
# False until the tree is below that number for the first time.
IS_BELOW = False
# `python scripts/room_sizes.py --write` sets these: the lines of a room when its numbers were set, and 2 % more.
ROOMS = {
    "__init__": 91,
    "__main__": 6,
    "allocator": 3_326,
    "api": 407,
    "bundled": 26,
    "cli": 2_195,
    "diagnosis": 5_990,
    "documents": 6_561,
    "errors": 69,
    "facts": 949,
    "ghost": 18_152,
    "integrations": 114,
    "limits": 652,
    "lookup": 581,
    "mcp": 1_136,
    "models": 7_308,
    "notebook": 244,
    "opening": 3_136,
    "page": 1_249,
    "recordings": 2_052,
    "render": 4_337,
    "rules": 2_294,
    "timeline": 155,
    "trainers": 21_218,
    "training": 9_220,
    "types": 1_635,
    "units": 86,
    "variants": 5_543,
    "verbs": 3_546,
    "whole_files": 212,
}


@pytest.fixture(scope="module")
def sizes():
    return room_sizes.rooms()


def test_no_room_grows_above_its_number(sizes):
    print(room_sizes.table(sizes))
    assert {name: size.lines for name, size in sizes.items() if size.lines > ROOMS.get(name, 0)} == {}


def test_no_number_is_left_of_a_room_that_is_gone(sizes):
    assert ROOMS.keys() - sizes.keys() == set()


@pytest.mark.xfail(not IS_BELOW, reason="the tree is above its number still: set IS_BELOW when it is not", strict=True)
def test_the_tree_does_not_grow(sizes):
    print(room_sizes.table(sizes))
    assert sum(size.lines for size in sizes.values()) <= MOST_LINES


def test_lines_are_counted_by_kind():
    text = '"""A module.\n\nWith two paragraphs.\n"""\n\n# a comment\nx = "# none"  # nor this\n\n\ndef f():\n    """One."""\n    return """\n# text\n"""\n'
    size = room_sizes.size_of(text)
    assert (size.files, size.code, size.docstrings, size.comments, size.blank) == (1, 5, 5, 1, 3)
    assert size.lines == len(text.splitlines())


def test_rooms_are_folders_and_modules(tmp_path):
    (tmp_path / "room" / "inner").mkdir(parents=True)
    for name in ("room/a.py", "room/inner/b.py", "alone.py"):
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "room" / "data.json").write_text("{}\n")
    assert {name: (size.files, size.lines) for name, size in room_sizes.rooms(tmp_path).items()} == {
        "room": (2, 2),
        "alone": (1, 1),
    }


def test_the_numbers_are_written_into_this_file(tmp_path):
    copy = tmp_path / "test_size.py"
    shutil.copy(__file__, copy)
    room_sizes.write({"one": room_sizes.Size(files=1, code=1000)}, copy)
    assert 'ROOMS = {\n    "one": 1_020,\n}\n' in copy.read_text(encoding="utf-8")
