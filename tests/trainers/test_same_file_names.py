"""Every trainer's folder has the same file names for the same parts."""

from pathlib import Path

import pytest

import vramwise
from vramwise.types.run import SECTIONS

FOLDER = Path(vramwise.__file__).parent / "trainers"
TRAINERS = sorted(path.parent.name for path in FOLDER.glob("*/trainer.py") if path.parent.name != "arguments")
PARTS = {"trainer", "recognise", "schema", "keys", "resolve", "spell", "refusals", "compose", "datasets"}
PARTS |= {"start", "script", "rules"}
# Parts that one trainer alone has.
OWN_PARTS = {
    "axolotl": {"plugins"},  # bring keys, rules and kernels of their own
    "transformers": {"embedded"},  # other trainers' files under the embedded engine
    "trl": {"kind"},  # the file does not say what it trains
}
SECTION_FILES = {*SECTIONS, "unfollowed"}
OWN_SECTION_FILES = {"axolotl": {"lora_kernels"}}  # rules and changes ask for it as well


def names_in(folder):
    found = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    return found - {"__init__"}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_trainer_has_the_common_names(trainer):
    assert names_in(FOLDER / trainer) - PARTS == OWN_PARTS.get(trainer, set())


@pytest.mark.parametrize("trainer", TRAINERS)
def test_resolve_has_one_file_a_section(trainer):
    resolve = FOLDER / trainer / "resolve"
    extra = names_in(resolve) - SECTION_FILES if resolve.is_dir() else set()
    assert extra == OWN_SECTION_FILES.get(trainer, set())


def test_all_trainers_are_looked_at():
    assert {"axolotl", "huggingface", "llamafactory", "transformers", "trl"} <= set(TRAINERS)
