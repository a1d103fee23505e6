"""Files: which ones a path names, reading without trusting size or kind, and writing all or nothing."""

from __future__ import annotations

import io
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from installed import not_root, posix
from vramwise.errors import ConfigError, VramwiseError
from vramwise.limits.ceilings import CONFIG_BYTES
from vramwise.opening.files import config_files, read_config_bytes
from vramwise.whole_files import WriteRefused, put_whole, write_atomic, write_new


def refusal(path: Path | str) -> str:
    with pytest.raises(ConfigError) as caught:
        read_config_bytes(str(path))
    return caught.value.message


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\n")
    assert read_config_bytes(str(path)) == b"\xef\xbb\xbfa: 1\r\n"


def test_a_file_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(b"#" * CONFIG_BYTES)
    assert len(read_config_bytes(str(path))) == CONFIG_BYTES


def test_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: \xff\n")))
    assert read_config_bytes("-") == b"a: \xff\n"


def test_endless_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(io.RawIOBase):
        given = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            buffer[:] = b"#" * len(buffer)
            Endless.given += len(buffer)
            return len(buffer)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Endless())))
    assert "larger than 1 MiB" in refusal("-")
    assert Endless.given < 2 * CONFIG_BYTES


def test_a_huge_file_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data.yml"
    with path.open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    monkeypatch.setattr("vramwise.opening.files._read_limited", None)  # would be called to read
    assert "larger than 1 MiB" in refusal(path)


@posix
def test_a_pipe_is_read_up_to_the_limit(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yml"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a: 1\n",))
    writer.start()
    assert read_config_bytes(str(pipe)) == b"a: 1\n"
    writer.join()


@posix
def test_an_endless_device_is_refused() -> None:
    assert "larger than 1 MiB" in refusal("/dev/zero")


def test_missing_folder_and_odd_paths(tmp_path: Path) -> None:
    assert "file not found" in refusal(tmp_path / "no.yml")
    assert "folder" in refusal(tmp_path)
    (tmp_path / "file").write_text("x")
    assert "cannot read the file: not a directory" in refusal(tmp_path / "file" / "c.yml")
    assert "cannot read" in refusal("a\0b")


@posix
@not_root
def test_permission_denied(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_text("a: 1\n")
    path.chmod(0)
    assert "permission denied" in refusal(path)


def test_permission_denied_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert "permission denied; check its mode" in refusal("c.yml")


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("a: 1\n")


def test_a_folder_is_every_yaml_below_it(tmp_path: Path) -> None:
    make(tmp_path, "b.yml", "a.yaml", "c.json", "sub/d.yml", "sub/deep/e.yaml", "A/z.yml")
    make(tmp_path, ".git/x.yml", ".venv/x.yml", "node_modules/p/x.yml", "sub/.hidden/x.yml", "venv/lib/x.yml")
    found = [Path(path).relative_to(tmp_path).as_posix() for path in config_files([str(tmp_path)])]
    assert found == ["a.yaml", "b.yml", "A/z.yml", "sub/d.yml", "sub/deep/e.yaml"]


def test_several_paths_each_once(tmp_path: Path) -> None:
    make(tmp_path, "a.yml", "b.yml")
    first = str(tmp_path / "b.yml")
    assert config_files([first, str(tmp_path), "-", first, "missing.yml"]) == [
        first,
        str(tmp_path / "a.yml"),
        "-",
        "missing.yml",
    ]


@posix
def test_loops_of_links_do_not_trap(tmp_path: Path) -> None:
    make(tmp_path, "sub/a.yml")
    (tmp_path / "sub" / "loop").symlink_to(tmp_path)
    (tmp_path / "link.yml").symlink_to("sub/a.yml")
    assert [Path(path).name for path in config_files([str(tmp_path)])] == ["link.yml", "a.yml"]


def test_a_folder_without_yaml_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no YAML file"):
        config_files([str(tmp_path)])


def test_an_unreadable_folder_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(ConfigError, match="permission denied"):
        config_files([str(tmp_path)])


def only_file(folder: Path) -> str:
    (name,) = [path.name for path in folder.iterdir()]
    return name


def test_writing_keeps_the_mode_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(b"a: 1\r\n")
    path.chmod(0o640)
    write_atomic(str(path), b"a: 2\r\n", expected=b"a: 1\r\n")
    assert path.read_bytes() == b"a: 2\r\n"
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert only_file(tmp_path) == "c.yml"


@posix
def test_of_a_link_the_target_is_written(tmp_path: Path) -> None:
    target = tmp_path / "real" / "c.yml"
    make(tmp_path, "real/c.yml")
    link = tmp_path / "link.yml"
    link.symlink_to("real/c.yml")
    write_atomic(str(link), b"a: 2\n", expected=b"a: 1\n")
    assert link.is_symlink()
    assert os.readlink(link) == "real/c.yml"  # noqa: PTH115 (the link's own text, unresolved)
    assert target.read_bytes() == b"a: 2\n"
    assert only_file(target.parent) == "c.yml"


@pytest.mark.parametrize("now", [b"a: 3\n", b"a: 1\nb: 2\n", b""])
def test_a_file_that_changed_is_left_alone(tmp_path: Path, now: bytes) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(now)
    with pytest.raises(WriteRefused, match="changed"):
        write_atomic(str(path), b"a: 2\n", expected=b"a: 1\n")
    assert path.read_bytes() == now
    assert only_file(tmp_path) == "c.yml"


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace", "pathlib.Path.chmod", "os.open"])
def test_a_failure_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(b"a: 1\n")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(step, full)
    with pytest.raises(WriteRefused, match="which is unchanged: no space left"):
        write_atomic(str(path), b"a: 2\n", expected=b"a: 1\n")
    assert path.read_bytes() == b"a: 1\n"
    assert only_file(tmp_path) == "c.yml"


def test_an_interrupt_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(b"a: 1\n")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(str(path), b"a: 2\n", expected=b"a: 1\n")
    assert path.read_bytes() == b"a: 1\n"
    assert only_file(tmp_path) == "c.yml"


def test_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WriteRefused, match="cannot write the file"):
        write_atomic(str(tmp_path / "no.yml"), b"", expected=b"")
    with pytest.raises(WriteRefused, match="not a regular file"):
        write_atomic(str(tmp_path), b"", expected=b"")
    path = tmp_path / "c.yml"
    path.write_bytes(b"a: 1\n")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(WriteRefused, match="read-only"):
        write_atomic(str(path), b"a: 2\n", expected=b"a: 1\n")
    assert path.read_bytes() == b"a: 1\n"


@posix
def test_a_pipe_in_a_folder_is_no_config(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("a: 1\n")
    (tmp_path / "broken.yml").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.yml")
    assert config_files([str(tmp_path)]) == [str(tmp_path / "a.yml"), str(tmp_path / "broken.yml")]


def test_a_new_file_has_the_mode_of_all_new_files(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    write_new(tmp_path / "ours", b"1")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "other").stat().st_mode


@posix
def test_a_private_file_is_private_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ours"
    path.write_bytes(b"1")
    path.chmod(0o600)
    seen = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.extend(one.stat().st_mode & 0o777 for one in tmp_path.iterdir()))
    write_new(path, b"2")
    assert set(seen) == {0o600}
    assert path.read_bytes() == b"2"


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace", "os.open"])
def test_a_new_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "ours"
    path.write_bytes(b"before")
    monkeypatch.setattr(step, full)
    with pytest.raises(VramwiseError, match="ours: No space left"):
        write_new(path, b"after")
    with pytest.raises(OSError, match="No space left"):
        put_whole(path, b"after")
    assert path.read_bytes() == b"before"
    assert only_file(tmp_path) == "ours"


def test_a_folder_is_made_where_that_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "ours"
    with pytest.raises(VramwiseError, match="cannot write"):
        write_new(path, b"1")
    write_new(path, b"1", make_folder=True)
    assert path.read_bytes() == b"1"
    with pytest.raises(VramwiseError, match="cannot write"):
        write_new(path / "below a file", b"1", make_folder=True)


def test_a_name_as_long_as_names_get(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 251 + ".yml")
    write_new(path, b"1")
    write_atomic(str(path), b"2", expected=b"1")
    assert only_file(tmp_path) == path.name
