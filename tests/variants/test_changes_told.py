"""What is said of the changes of a search: in the table, in a trainer's words, and for the embedded engine."""

import subprocess
import sys

import pytest
import varied

from vramwise.trainers.registry import trainer_named
from vramwise.training.embedded import unsupported
from vramwise.variants.axes import ALLOW, AXES

KINDS = {kind.id: kind for axis in AXES for kind in axis.kinds}


def test_the_table_of_changes_is_current():
    script = varied.ROOT / "scripts" / "fit_changes.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_change_has_words_where_no_config_is_at_hand():
    trainer = trainer_named("axolotl")
    elsewhere = ("expandable-segments", "load-in-bf16", "bf16-weights")
    assert [name for name in KINDS if name not in elsewhere and not trainer.words.get(name)] == []
    assert all(trainer_named("trl").words.get(name) for name in elsewhere)


def test_an_id_stands_for_one_sort_of_change():
    kinds = {kind for axis in AXES for kind in axis.kinds}
    assert len(kinds) == len(KINDS)


@pytest.mark.parametrize("name", varied.TEXTS)
def test_the_embedded_engine_honours_what_it_is_offered(name):
    data = "datasets:\n  - path: rows.jsonl\n    type: alpaca\n"
    before = varied.subject(varied.TEXTS[name] + data, trainer="transformers")
    complaints = {error.message for error in unsupported(before.run)}
    for step in varied.steps(before, ALLOW):
        wanted = {field: varied.plain(field, value) for field, value in step.change.fields.items()}
        assert varied.held(step.after.run, step.change.fields) == wanted, step.change.id
        assert {error.message for error in unsupported(step.after.run)} <= complaints, step.change.id
