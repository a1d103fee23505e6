"""`check` loads what it needs: modules are counted, not seconds, so that the test says the same on every machine."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
MOST_MODULES = 180
LISTING = """
import sys
from vramwise.cli.main import main
try:
    main()
except SystemExit as end:
    code = end.code
print("exit", code, *sorted(name for name in sys.modules if name.partition(".")[0] == "vramwise"))
"""


def loaded_by(*words):
    done = subprocess.run([sys.executable, "-c", LISTING, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    name, code, *modules = done.stdout.splitlines()[-1].split()
    assert (name, code) in (("exit", "0"), ("exit", "1"))
    return modules


@pytest.mark.parametrize("name", ["qlora.yml", "trl-sft.yml", "llamafactory-lora.yml"])
def test_check_of_one_file_loads_few_modules(name):
    modules = loaded_by("check", str(EXAMPLES / name))
    assert "vramwise.rules.judge" in modules
    assert len(modules) <= MOST_MODULES, "\n".join(modules)


@pytest.mark.parametrize("more", [[], ["--gpu", "rtx-4090", "--no-predict"]])
def test_check_without_a_prediction_loads_no_ghost_run(more):
    modules = loaded_by("check", str(EXAMPLES / "qlora.yml"), *more)
    rooms = {".".join(module.split(".")[:3]) for module in modules}
    unneeded = {"vramwise.ghost", "vramwise.allocator.run", "vramwise.variants.search", "vramwise.verbs.fitting"}
    assert not rooms & (unneeded | {"vramwise.opening.data", "vramwise.verbs.fix", "vramwise.variants.prediction"})


@pytest.mark.parametrize("verb", ["check", "predict"])
def test_a_run_that_fits_is_predicted_without_a_search(verb):
    modules = loaded_by(verb, str(EXAMPLES / "qlora.yml"), "--gpu", "h200")
    assert "vramwise.ghost.loops.sft" in modules
    unneeded = ["vramwise.variants.search", "vramwise.verbs.fitting.fastest", "vramwise.verbs.fitting.ways_out"]
    unneeded += ["vramwise.variants.speed"] if verb == "check" else []
    assert not [module for module in modules if module.startswith(tuple(unneeded))]


def test_only_the_rules_of_the_files_trainer_are_loaded():
    modules = loaded_by("check", str(EXAMPLES / "trl-sft.yml"))
    theirs = {
        module.split(".")[2] for module in modules if module.startswith("vramwise.trainers.") and ".rules" in module
    }
    assert theirs == {"arguments", "scripts", "trl"}
