"""The versions of a run: said, pinned in a file, installed, or a release's own pins; package by package."""

import pytest

from vramwise.errors import VramwiseError
from vramwise.facts.torch import NEWEST_TORCH, OLDEST_TORCH, shown

# Bound here: the suite's quiet environment replaces the module's own look around while a test runs.
from vramwise.opening.stacks import _from_here, make_stack
from vramwise.trainers import trl
from vramwise.trainers.releases import known_versions
from vramwise.types import Origin, Release

RELEASES = {"0.19.0": {"torch": "2.11.0", "peft": "0.20.0"}, "0.21.0": {"torch": "2.13.0", "peft": "0.21.2"}}


def stack(**words):
    return make_stack("axolotl", RELEASES, look_around=False, **words)


def versions(found):
    return {name: release.version for name, release in found.releases.items()}


def test_without_a_word_the_newest_known_release_with_its_pins():
    found = stack()
    assert versions(found) == {"axolotl": "0.21.0", "torch": "2.13.0", "peft": "0.21.2"}
    assert found.releases["axolotl"].origin.kind == "assumed"
    assert found.releases["peft"].origin.why == "what axolotl 0.21.0 installs with"


def test_a_release_that_is_said_brings_its_own_pins():
    found = stack(said=("axolotl==0.19.0",))
    assert versions(found) == {"axolotl": "0.19.0", "torch": "2.11.0", "peft": "0.20.0"}
    assert found.releases["axolotl"].origin.kind == "option"


def test_what_is_said_wins_over_the_file_and_the_file_over_the_pins(tmp_path):
    listed = tmp_path / "requirements.txt"
    listed.write_text(
        "# ours\ntorch==2.12.1+cu130 ; python_version > '3'\npeft==0.19.0\nAxolotl[flash-attn]==0.19.0\nx>=1\n"
    )
    found = stack(said=("peft==0.18.0",), file=str(listed))
    assert versions(found) == {"axolotl": "0.19.0", "torch": "2.12.1+cu130", "peft": "0.18.0"}
    assert found.torch == (2, 12)
    assert "requirements.txt" in found.releases["torch"].origin.why


def test_a_uv_lock(tmp_path):
    lock = tmp_path / "uv.lock"
    lock.write_text(
        'version = 1\n[[package]]\nname = "axolotl"\nversion = "0.19.0"\n[[package]]\nname = "peft"\nversion = "0.20.1"\n'
    )
    assert versions(stack(file=str(lock))) == {"axolotl": "0.19.0", "torch": "2.11.0", "peft": "0.20.1"}


@pytest.mark.parametrize(
    ("version", "taken"), [("0.20.5", "0.19.0"), ("0.30.0", "0.21.0"), ("0.1.0", "0.19.0"), ("0.21.0.dev1", "0.21.0")]
)
def test_a_release_that_is_not_known_is_read_as_the_one_before_it(version, taken):
    release = stack(said=(f"axolotl=={version}",)).releases["axolotl"]
    assert release.version == taken
    assert f"treated as axolotl {taken}" in release.origin.why


def test_a_release_may_be_said_by_its_short_name():
    assert stack(said=("axolotl==0.21",)).releases["axolotl"].version == "0.21.0"


@pytest.mark.parametrize("words", ["axolotl", "axolotl=0.21", "==1", "axolotl==", "axolotl==new", "a b==1", "torch>=2"])
def test_what_names_no_version_is_refused(words):
    with pytest.raises(VramwiseError, match="is not a version"):
        stack(said=(words,))


def test_contradictions_are_refused():
    with pytest.raises(VramwiseError, match="twice"):
        stack(said=("peft==1.0", "peft==2.0"))
    with pytest.raises(VramwiseError, match="use only one of them"):
        stack(said=("torch==2.9",), torch="2.8")


def test_an_unknown_torch_is_treated_as_the_nearest_and_keeps_its_name(tmp_path):
    newer = stack(said=("torch==2.20",))
    assert newer.torch == NEWEST_TORCH
    assert newer.releases["torch"].meant == "2.20"
    assert set(newer.unknown) == {"torch"}
    listed = tmp_path / "list.txt"
    listed.write_text("torch==1.13\n")
    assert stack(file=str(listed)).torch == OLDEST_TORCH
    with pytest.raises(VramwiseError, match="is not a torch version"):
        stack(torch="new")


@pytest.mark.parametrize(
    ("version", "known"), [("0.8.0", False), ("0.20.5", True), ("0.21.0", True), ("99.0.0", False)]
)
def test_a_release_outside_the_known_ones_is_marked(version, known):
    release = stack(said=(f"axolotl=={version}",)).releases["axolotl"]
    assert release.known is known
    assert release.meant == version


@pytest.mark.parametrize(("version", "known"), [("4.30.2", False), ("4.41.2", True), ("5.24.0", False)])
def test_transformers_outside_the_known_releases_keeps_its_version_and_is_marked(version, known):
    release = stack(said=(f"transformers=={version}",)).releases["transformers"]
    assert (release.version, release.known) == (version, known)


@pytest.mark.parametrize(
    ("asked", "version", "kind"),
    [
        ("axolotl<0.21", "0.19.0", "file"),
        ("axolotl~=0.19.0", "0.19.0", "file"),
        ("axolotl==0.19.*", "0.19.0", "file"),
        ("axolotl>=0.20", "0.21.0", "assumed"),
        ("axolotl>=0.1,!=0.20.0", "0.21.0", "assumed"),
    ],
)
def test_a_range_is_the_newest_known_release_in_it(tmp_path, asked, version, kind):
    (tmp_path / "pyproject.toml").write_text(f'[project]\ndependencies = ["{asked}"]\n')
    release = stack(folder=tmp_path).releases["axolotl"]
    assert (release.version, release.origin.kind, release.known) == (version, kind, True)


def test_a_range_without_a_known_release_is_read_as_the_nearest(tmp_path):
    (tmp_path / "list.txt").write_text("axolotl>=0.30\n")
    release = stack(file=str(tmp_path / "list.txt")).releases["axolotl"]
    assert (release.version, release.meant, release.age) == ("0.21.0", "0.30", "newer")
    assert "axolotl>=0.30 in" in release.origin.why
    (tmp_path / "environment.yml").write_text("dependencies:\n  - pip:\n      - axolotl<0.5\n")
    assert stack(folder=tmp_path).releases["axolotl"].age == "older"


def test_a_mistyped_package_is_refused():
    with pytest.raises(VramwiseError, match="did you mean transformers"):
        stack(said=("tranformers==4.41.2",))
    for other in ("datasets==3.0.0", "unsloth==2024.8", "trl==0.12.2"):
        stack(said=(other,))


def test_a_repository_s_own_copy_of_the_trainer_is_no_release(tmp_path):
    copy = tmp_path / "src" / "axolotl"
    copy.mkdir(parents=True)
    (copy / "__init__.py").write_text('"""Own."""\n__version__ = "0.20.0.dev0"\n')
    release = stack(copy=copy).releases["axolotl"]
    assert (release.version, release.meant, release.age) == ("0.19.0", "0.20.0.dev0", "own")
    assert stack(copy=copy, said=("axolotl==0.21.0",)).releases["axolotl"].known


@pytest.mark.parametrize("content", ["", "no pins here\n", "version = 1\n[[package]]\nname = [\n"])
def test_a_file_that_pins_nothing_is_refused(tmp_path, content):
    empty = tmp_path / "list.txt"
    empty.write_text(content)
    with pytest.raises(VramwiseError, match=r"list\.txt"):
        stack(file=str(empty))


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(VramwiseError, match="cannot be read"):
        stack(file=str(tmp_path / "none.txt"))


@pytest.mark.parametrize(
    ("installed", "version"),
    [("2.8.0+cu128", (2, 8)), ("2.20.0", NEWEST_TORCH), ("1.12", OLDEST_TORCH)],
)
def test_the_installed_version_comes_from_metadata(monkeypatch, tmp_path, installed, version):
    (tmp_path / f"torch-{installed}.dist-info").mkdir()
    (tmp_path / "torchvision-0.1.dist-info").mkdir()
    monkeypatch.setattr("sys.path", ["/nowhere/at.zip", str(tmp_path)])
    monkeypatch.setattr("vramwise.opening.stacks._from_here", _from_here)
    found = make_stack("axolotl", RELEASES)
    assert found.torch == version
    assert "installed here" in found.releases["torch"].origin.why


def test_versions_read_as_numbers():
    found = stack(said=("peft==0.21.2rc1",), torch="2.9.1+cu130")
    assert found.parts("peft") == (0, 21, 2)
    assert found.parts("nothing") == ()
    assert shown(found.torch) == "2.9"


def test_a_list_of_versions_is_read_again_each_time(tmp_path):
    from vramwise.opening.options import Options
    from vramwise.opening.subject import open_subject

    listed = tmp_path / "list.txt"
    config = {"base_model": "m", "micro_batch_size": 1}
    for version in ("2.8.0", "2.9.0"):
        listed.write_text(f"torch=={version}\n")
        assert open_subject(config, Options(stack=str(listed))).target.stack.releases["torch"].version == version


def test_what_is_installed_beside_another_trainer_is_not_that_of_the_one_that_is_said(monkeypatch):
    here = {
        name: Release(version=version, origin=Origin(kind="environment", why="installed here"))
        for name, version in (("axolotl", "0.21.0"), ("peft", "0.21.2"), ("deepspeed", "0.18.0"))
    }
    monkeypatch.setattr("vramwise.opening.stacks._from_here", lambda packages: here)
    found = make_stack("axolotl", RELEASES, said=("axolotl==0.19.0",))
    assert versions(found) == {"axolotl": "0.19.0", "torch": "2.11.0", "peft": "0.20.0", "deepspeed": "0.18.0"}
    same = make_stack("axolotl", RELEASES, said=("axolotl==0.21.0", "torch==2.12.0"))
    assert versions(same) == {"axolotl": "0.21.0", "torch": "2.12.0", "peft": "0.21.2", "deepspeed": "0.18.0"}
    assert same.releases["peft"].origin.why == "installed here"


def test_where_the_trainer_is_not_installed_its_release_says_what_it_runs_with(monkeypatch):
    here = {
        name: Release(version=version, origin=Origin(kind="environment", why="installed here"))
        for name, version in (("torch", "2.12.0"), ("peft", "0.30.0"), ("deepspeed", "0.18.0"))
    }
    monkeypatch.setattr("vramwise.opening.stacks._from_here", lambda packages: here)
    found = make_stack("axolotl", RELEASES)
    assert versions(found) == {"axolotl": "0.21.0", "torch": "2.12.0", "peft": "0.21.2", "deepspeed": "0.18.0"}


def test_lists_beside_the_file_come_before_what_is_installed(tmp_path):
    from vramwise.opening.options import Options
    from vramwise.opening.subject import open_subject

    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text("axolotl==0.19.0\npeft>=0.1\n")
    config = tmp_path / "configs" / "run.yml"
    config.parent.mkdir()
    config.write_text("base_model: m\nmicro_batch_size: 1\n")
    release = open_subject(str(config)).target.stack.releases["axolotl"]
    assert (release.version, release.origin.kind) == ("0.19.0", "file")
    assert "requirements.txt" in release.origin.why
    said = open_subject(str(config), Options(versions=("axolotl==0.20.0",))).target.stack.releases["axolotl"]
    assert said.version == "0.20.0"
    (config.parent / "uv.lock").write_bytes(b"\xff nothing")  # closer, and it pins nothing
    assert open_subject(str(config)).target.stack.releases["axolotl"].version == "0.19.0"
    (config.parent / "setup.sh").write_text("echo axolotl==0.18.0\npip install 'axolotl==0.20.0' torch==2\n")
    assert open_subject(str(config)).target.stack.releases["axolotl"].version == "0.20.0"


def test_a_script_pins_its_versions_in_its_own_metadata(tmp_path):
    from vramwise.opening.subject import open_subject

    script = tmp_path / "sft.py"
    script.write_text(
        '# /// script\n# dependencies = ["trl==99.0.0", "peft"]\n# ///\nfrom trl import SFTTrainer\n'
        'SFTTrainer("Qwen/Qwen3-0.6B").train()\n'
    )
    release = open_subject(str(script)).target.stack.releases["trl"]
    newest = known_versions(trl.__file__)[-1]
    assert (release.version, release.meant, release.age) == (newest, "99.0.0", "newer")
