"""`doctor`: versions, card and packages, in text and as JSON; nothing is imported for it."""

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import vramwise as package
from vramwise.facts.gpus import find_gpu


def as_installed(monkeypatch, versions):
    def version(name):
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr("vramwise.verbs.doctor.version", version)


def test_what_is_here_is_one_block(vramwise, monkeypatch):
    as_installed(monkeypatch, {"torch": "2.13.0", "trl": "1.16.0"})
    monkeypatch.setattr("vramwise.verbs.doctor.local_gpu", lambda: (find_gpu("rtx-4090"), 2))
    monkeypatch.setattr("vramwise.verbs.doctor.driver_version", lambda: "580.65.06")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    shown = vramwise("doctor").stdout.splitlines()
    assert shown[0].startswith(f"vramwise {package.__version__}, Python {sys.version_info[0]}.")
    assert shown[1] == "card: 2 × RTX 4090, 23.5 GiB (driver 580.65.06)"
    assert shown[2] == "installed: torch 2.13.0, trl 1.16.0"
    assert shown[3].startswith("not installed: transformers, accelerate, ")
    assert "PYTORCH_ALLOC_CONF=expandable_segments:True" in shown[4]


def test_without_a_card_or_packages(vramwise, monkeypatch):
    as_installed(monkeypatch, {})
    monkeypatch.setattr("vramwise.verbs.doctor.local_gpu", lambda: None)
    monkeypatch.setattr("vramwise.verbs.doctor.driver_version", lambda: None)
    found = json.loads(vramwise("doctor", "--format", "json").stdout)
    assert (found["card"], found["cards"], found["driver"]) == (None, 0, None)
    assert set(found["packages"].values()) == {None}
    assert {"axolotl", "llamafactory", "unsloth", "mcp"} <= set(found["packages"])
    assert "card: none (no NVIDIA driver)" in vramwise("doctor").stdout


def test_no_package_is_imported_to_read_its_version():
    lines = "import sys; from vramwise.verbs.doctor import doctor; doctor(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "mcp"} & set(done.stdout.split())
