"""The README and the pages keep their word: commands, options, links and shown output are those of the product."""

import re
import shutil
from pathlib import Path

import click
import pytest

import pictures
import vramwise as package
from vramwise.cli.main import COMMANDS, LazyGroup, cli
from vramwise.variants.axes import ALLOW

ROOT = Path(__file__).parent.parent
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "skills/vramwise/SKILL.md")),
    *sorted((ROOT / "docs").glob("*.md")),
)
# What users copy from.
COPIED = (*PAGES, ROOT / "action.yml", ROOT / ".pre-commit-hooks.yaml", *sorted((ROOT / ".github").rglob("*.yml")))
# The page that explains a command; the small ones are explained by --help.
PAGE_OF = {name: f"{name}.md" for name in ("new", "check", "fix", "predict", "fit", "replay", "train", "diagnose")} | {
    "report": "report.md",
    "trace": "tracing.md",
    "mcp": "mcp.md",
    "serve": "page.md",
    "schema": "editor.md",
    "rules": "explain.md",
    "explain": "explain.md",
    "gpus": "explain.md",
    "doctor": "explain.md",
}
# Pages that say "as for check" about the machine's and the rules' options.
SHARED_PAGES = ("check.md", "scripts.md")


def options_of(name: str) -> set[str]:
    command = LazyGroup().get_command(click.Context(cli), name)
    assert command is not None
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {word for option in options for word in (*option.opts, *option.secondary_opts) if word.startswith("--")}


def commands_in(text: str):
    """Every `vramwise verb …` in code, as its verb and the options on it."""
    code = "\n".join(re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL) + re.findall(r"`([^`\n]+)`", text))
    for line in code.splitlines():
        for part in re.split(r"[|;]", line.partition("  #")[0]):
            found = re.search(r"\bvramwise ([a-z]+)\b(.*)", part)
            if found:
                # what stands behind ` -- ` is another program's
                yield found[1], re.findall(r"(?<!\S)--[a-z-]+", found[2].partition(" -- ")[0])


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_that_are_named_exist(page):
    for verb, words in commands_in(page.read_text(encoding="utf-8")):
        if verb in COMMANDS:
            assert set(words) <= options_of(verb) | {"--help"}, f"vramwise {verb}"


def test_every_option_is_documented():
    for name, page in PAGE_OF.items():
        text = "".join((ROOT / "docs" / one).read_text(encoding="utf-8") for one in (page, *SHARED_PAGES))
        undocumented = {option for option in options_of(name) if option not in text}
        assert undocumented == set(), f"{name}: {undocumented}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name) if name else page
        assert linked.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}, target


def test_the_output_in_the_readme_is_the_output(vramwise, monkeypatch):
    monkeypatch.chdir(ROOT)
    shown = re.search(r"```\n(\$ vramwise.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    for block in re.split(r"^\$ vramwise ", shown[1], flags=re.MULTILINE)[1:]:
        command, _, output = block.partition("\n")
        real = flat(vramwise(*command.split()).output)  # verdicts of `new` go to standard error
        for part in output.split("…"):
            assert flat(part) in real, command


PICTURES = ["predict", "check", "fit", "notebook", "diagnose"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_show_what_is_printed(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert set(PICTURES) == set(pictures.COMMANDS)
    drawn = (pictures.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == pictures.svg(pictures.lines_of(pictures.COMMANDS[name])), "run scripts/pictures.py"


def test_the_page_of_fit_names_every_word_that_opens_more():
    page = (ROOT / "docs" / "fit.md").read_text(encoding="utf-8")
    assert [word for word in ALLOW if f"`{word}`" not in page] == []


@pytest.mark.usefixtures("short_searches")
def test_the_python_of_the_docs_runs(tmp_path, monkeypatch, capsys):
    (tmp_path / "configs").mkdir()
    shutil.copy(ROOT / "examples" / "qlora.yml", tmp_path / "config.yml")
    shutil.copy(ROOT / "examples" / "mistakes.yml", tmp_path / "configs")
    shutil.copy(ROOT / "tests" / "data" / "traces" / "full_gc_default.json.gz", tmp_path / "snapshot.pickle")
    (tmp_path / "train.log").write_text("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(package, "train", lambda path, **options: 0)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, "python.md", "exec"), {})
    assert "eval-batch-differs" in capsys.readouterr().out


@pytest.mark.parametrize("page", COPIED, ids=lambda page: page.name)
def test_what_users_copy_has_no_placeholder_and_pins_actions(page):
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"\bOWNER\b", text)
    for action in re.findall(r"\buses: (\S+)", text):
        assert action.startswith("./") or re.search(r"@[0-9a-f]{40}$", action), action


def test_the_changelog_ends_with_this_version():
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert released[0] == package.__version__
