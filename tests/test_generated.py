"""Generated files: `make generate` runs every script that writes some, and `--check` tells what is not current."""

import re
import sys
from pathlib import Path

import pytest
import yaml

import generated

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")


@pytest.fixture
def root(monkeypatch, tmp_path):
    monkeypatch.setattr(generated, "ROOT", tmp_path)
    return tmp_path


def words_of(name: str) -> list[str]:
    (line,) = re.findall(rf"^{name} := (.*)$", MAKEFILE, re.MULTILINE)
    return [word for part in line.split() for word in (words_of(part[2:-1]) if part.startswith("$(") else [part])]


def test_make_generate_runs_every_script_that_writes_generated_files():
    paths = [path for folder in ("scripts", "bench", "tests") for path in (ROOT / folder).rglob("*.py")]
    users = {
        path.relative_to(ROOT).as_posix()
        for path in paths
        if re.search(r"return write_or_check\(", path.read_text(encoding="utf-8"))
    }
    assert users == set(words_of("GENERATED"))


def test_what_make_quick_runs_is_there():
    assert [path for path in words_of("QUICK") if not (ROOT / path).exists()] == []


def test_a_file_is_written_where_it_differs(root, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["script"])
    same, other, old = (root / name for name in ("same.md", "folder/other.md", "old.md"))
    same.write_text("as it is\n")
    old.write_text("no longer made\n")
    assert generated.write_or_check({same: "as it is\n", other: "new\n"}, gone=frozenset({old})) == 0
    assert other.read_text() == "new\n"
    assert not old.exists()
    assert capsys.readouterr().out == "folder/other.md written\n"


def test_check_lists_what_is_not_current_and_writes_nothing(root, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["script", "--check"])
    same, other, old = (root / name for name in ("same.md", "other.md", "old.md"))
    same.write_text("as it is\n")
    old.write_text("no longer made\n")
    assert generated.write_or_check({same: "as it is\n", other: "new\n"}, gone=frozenset({old})) == 1
    assert capsys.readouterr().out.splitlines() == [
        "other.md is not current: run `make generate`",
        "old.md is not current: run `make generate`",
    ]
    assert not other.exists()
    assert old.exists()
    assert generated.write_or_check({same: "as it is\n"}) == 0


def test_hooks_for_contributors_call_tools_that_make_installs():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for command, *words in (hook["entry"].split() for hook in hooks):
        if command == "make":
            assert re.search(rf"^{words[0]}:", MAKEFILE, re.MULTILINE)
        else:
            assert command.startswith(".venv-dev/bin/")
            assert f'"{Path(command).name}>=' in project
