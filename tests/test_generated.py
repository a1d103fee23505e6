"""Generated files: `make generate` runs every script that writes some, and `--check` tells what is not current."""

import re
import sys
from pathlib import Path

import pytest
import yaml

import block_events
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


def test_the_page_on_the_ghost_run_shows_the_code_and_its_requests():
    page = block_events.PAGE.read_text(encoding="utf-8")
    assert block_events.page(page) == page, "run `make generate`"
    assert page.count("def __call__") == 3
    requests = re.findall(r"^ *\d+ .* MiB  freed (?:in|after) ", page, re.MULTILINE)
    assert len(requests) > 80


def test_a_request_of_the_block_lives_until_its_last_use():
    """Worked out by hand for Llama 3.2 1B: gate, activation, up and product have 1024 tokens × 8192 × 2 bytes."""
    lines = list(block_events.lines(block_events.run()))
    forward, backward = lines[1 : lines.index("")], lines[lines.index("") + 2 :]
    wide = [line for line in forward if "16.00 MiB" in line]
    assert len(wide) == 4
    assert all("freed in backward" in line for line in wide)
    weights = [line.split(".layers.1.")[1] for line in backward if "gradients: model.layers.1." in line]
    assert [name for name in weights if "_proj" in name] == [
        *("mlp.down_proj.weight", "mlp.up_proj.weight", "mlp.gate_proj.weight"),
        *("self_attn.o_proj.weight", "self_attn.v_proj.weight", "self_attn.k_proj.weight", "self_attn.q_proj.weight"),
    ]
