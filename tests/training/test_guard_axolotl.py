"""The Axolotl plugin against Axolotl's plugin interface (0.19), which the test stands in for."""

import importlib
import sys
from types import ModuleType

import pytest

from installed import needs

pytestmark = needs("torch", "transformers")


@pytest.fixture
def plugin_class(monkeypatch):
    base = ModuleType("axolotl.integrations.base")
    base.BasePlugin = type("BasePlugin", (), {"add_callbacks_pre_trainer": lambda self, cfg, model: []})
    for name in ("axolotl", "axolotl.integrations"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "axolotl.integrations.base", base)
    monkeypatch.delitem(sys.modules, "vramwise.integrations.axolotl", raising=False)
    # what Axolotl does with "vramwise.integrations.axolotl.MemoryGuardPlugin"
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # put back what a plugin sets
    return importlib.import_module("vramwise.integrations.axolotl").MemoryGuardPlugin


def test_the_guard_is_added_with_what_the_config_declares(plugin_class, tmp_path):
    plugin = plugin_class()
    cfg = {"output_dir": str(tmp_path), "sequence_len": 2000, "micro_batch_size": 2, "sample_packing": True}
    [guard] = plugin.add_callbacks_post_trainer(cfg, trainer=None)
    assert guard._expected.max_width == 4032  # 2 × 2000, rounded up to 64
    assert guard._output_dir == str(tmp_path)
    assert guard._expected.predicted is None


def test_a_plan_brings_its_prediction(plugin_class, tmp_path, monkeypatch):
    from plans import make_plan

    from vramwise.training.plan import PredictedMemory, write_plan

    predicted = PredictedMemory(peak_allocated_bytes=1, peak_reserved_bytes=2, outside_bytes=3, limit_bytes=None)
    path = write_plan(make_plan(tmp_path, predicted=predicted))
    monkeypatch.setenv("VRAMWISE_PLAN", str(path))
    [guard] = plugin_class().add_callbacks_post_trainer({"sequence_len": 100}, trainer=None)
    assert guard._expected.predicted == predicted
    assert guard._expected.max_width == 128


@pytest.mark.parametrize(("trained", "phase"), [(False, "load"), (True, "train")])
def test_an_error_of_memory_is_written_down_before_it_is_shown(plugin_class, tmp_path, monkeypatch, trained, phase):
    from types import SimpleNamespace

    from plans import make_plan

    from vramwise.training.guard.oom import read_record
    from vramwise.training.plan import write_plan

    shown = []
    monkeypatch.setattr(sys, "excepthook", lambda *error: shown.append(error[1]))
    monkeypatch.setenv("VRAMWISE_PLAN", str(write_plan(make_plan(tmp_path, attempt=3))))
    plugin = plugin_class()
    if trained:
        [guard] = plugin.add_callbacks_post_trainer({}, SimpleNamespace(state=SimpleNamespace(global_step=6)))
        guard.phase = "train"
    other, full = ValueError("no"), RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    sys.excepthook(ValueError, other, None)
    assert read_record(tmp_path, 3) is None
    sys.excepthook(RuntimeError, full, None)
    assert shown == [other, full]
    record = read_record(tmp_path, 3)
    assert (record["phase"], record["step"]) == (phase, 7 if trained else None)
    assert record["requested_bytes"] == 2 * 1024**3


def test_vramwise_itself_imports_neither():
    import subprocess

    code = "import sys, vramwise, vramwise.api, vramwise.integrations; print({'torch', 'axolotl', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
