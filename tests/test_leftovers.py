"""What a killed writer leaves beside a file goes with the next write; what is not ours, or still being written, stays.

And the other names of a hard-linked file: a rename cannot reach them, so the user is told.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vramwise.whole_files import clear_leftovers, put_whole, write_atomic

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and locks")

SOURCE = str(Path(__file__).parent.parent / "src")
CONFIG = (
    "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 2\neval_batch_size: 16\nval_set_size: 0.1\nbf16: auto\n"
)
# The real command line, killed or held up when its sibling is written but not yet renamed.
KILLED = "import os, signal; os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)"
HELD = "import os; os.fsync = lambda _: (print('writing', flush=True), input())"
MAIN = "from vramwise.cli.main import main; main()"


def words(path: Path, *, before: str = "") -> list[str]:
    return [sys.executable, "-c", f"{before}\n{MAIN}", "fix", str(path), "--unsafe-fixes"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCE}


def run(path: Path, *, before: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(path, before=before), capture_output=True, text=True, env=environment(), check=False)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "c.yml"
    path.write_text(CONFIG)
    return path


def kill_a_fix(config: Path) -> Path:
    assert run(config, before=KILLED).returncode == -signal.SIGKILL
    assert config.read_text() == CONFIG
    (left,) = [path for path in config.parent.iterdir() if path.name.startswith(".c.yml.")]
    return left


def test_the_next_fix_removes_what_a_killed_one_left(config: Path) -> None:
    kill_a_fix(config)
    kill_a_fix(config)  # it finds one leftover, its own: the first one's is gone
    done = run(config)
    assert done.returncode in (0, 1), done.stderr
    assert names(config.parent) == ["c.yml"]
    assert config.read_text() != CONFIG


def test_also_a_fix_that_has_nothing_to_write(config: Path) -> None:
    left = kill_a_fix(config)
    left.replace(config)  # mended by hand
    (config.parent / left.name).write_text("again")
    assert run(config).returncode in (0, 1)
    assert names(config.parent) == ["c.yml"]


def test_a_fix_that_writes_nothing_by_wish_removes_nothing(config: Path) -> None:
    left = kill_a_fix(config)
    subprocess.run([*words(config), "--diff"], capture_output=True, env=environment(), check=False)
    assert left.exists()


def test_a_sibling_that_is_being_written_stays(config: Path) -> None:
    left = kill_a_fix(config)
    held = subprocess.Popen(
        words(config, before=HELD), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert held.stdout is not None
    assert held.stdout.readline() == "writing\n"
    (writing,) = [name for name in names(config.parent) if name.startswith(".c.yml.")]
    assert writing != left.name
    write_atomic(str(config), b"theirs: 1\n", expected=CONFIG.encode())
    assert names(config.parent) == sorted(["c.yml", writing])
    _, _ = held.communicate("\n")
    assert held.returncode == 2  # the file changed meanwhile: it is left unchanged
    assert config.read_text() == "theirs: 1\n"
    assert names(config.parent) == ["c.yml"]


@pytest.mark.parametrize(
    "name",
    [
        ".c.yml.tmp",
        ".c.yml.0123456789ab.tmp",
        ".c.yml.vramwise-0123456789ab.tmp.bak",
        ".c.yml.vramwise-0123456789AB.tmp",
        ".c.yml.vramwise-0123456789ab0.tmp",
        ".d.yml.vramwise-0123456789ab.tmp",
        "c.yml.vramwise-0123456789ab.tmp",
    ],
)
def test_other_names_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("theirs")
    put_whole(tmp_path / "c.yml", b"1")
    assert names(tmp_path) == sorted(["c.yml", name])


def test_folders_links_and_pipes_of_that_name_stay(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / ".c.yml.vramwise-00000000000a.tmp").mkdir()
    (tmp_path / ".c.yml.vramwise-00000000000b.tmp").symlink_to("theirs")
    os.mkfifo(tmp_path / ".c.yml.vramwise-00000000000c.tmp")
    before = names(tmp_path)
    put_whole(tmp_path / "c.yml", b"1")
    assert names(tmp_path) == sorted([*before, "c.yml"])
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_of_a_link_the_targets_folder_is_cleared(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "c.yml").write_text("a: 1\n")
    (tmp_path / "real" / ".c.yml.vramwise-0123456789ab.tmp").write_text("left")
    (tmp_path / "link.yml").symlink_to("real/c.yml")
    clear_leftovers(tmp_path / "link.yml")
    assert names(tmp_path / "real") == ["c.yml"]


def test_a_sibling_swept_before_it_was_locked_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import vramwise.whole_files as files

    lock, swept = files._lock, []

    def sweep_first(descriptor: int) -> bool:
        if not swept:
            swept.extend(tmp_path.iterdir())
            swept[0].unlink()
        return lock(descriptor)

    monkeypatch.setattr(files, "_lock", sweep_first)
    put_whole(tmp_path / "c.yml", b"1")
    assert len(swept) == 1
    assert names(tmp_path) == ["c.yml"]


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    """Each write also clears: none may take another's sibling away."""
    path = tmp_path / "c.yml"
    code = f"from vramwise.whole_files import put_whole\nfor n in range(60): put_whole({str(path)!r}, bytes(1000))"
    writers = [subprocess.Popen([sys.executable, "-c", code], env=environment()) for _ in range(3)]
    assert [one.wait() for one in writers] == [0, 0, 0]
    assert names(tmp_path) == ["c.yml"]


@pytest.mark.parametrize("links", [1, 2])
def test_other_hard_links_keep_the_old_content_and_that_is_said(config: Path, links: int) -> None:
    others = [config.parent / f"other{number}.yml" for number in range(links)]
    for other in others:
        other.hardlink_to(config)
    done = run(config)
    assert config.read_text() != CONFIG
    assert {other.read_text() for other in others} == {CONFIG}
    said = "1 other name still has" if links == 1 else "2 other names still have"
    assert f"note: {config} had hard links: {said} the old content\n" in done.stderr
    assert "hard-linked" not in run(config).stderr


def test_a_file_of_one_name_has_no_note(config: Path) -> None:
    assert write_atomic(str(config), b"a: 1\n", expected=CONFIG.encode()) == ""
