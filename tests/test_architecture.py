"""The house rules that a machine can keep: import order, pure rooms, no torch outside train/."""

import ast
import subprocess
import sys
from pathlib import Path

import vramwise

SOURCE = Path(vramwise.__file__).parent
PURE_ROOMS = ("rules", "ghost", "allocator")
IMPURE = {"os", "socket", "subprocess", "urllib", "requests", "time", "datetime", "random", "tempfile", "shutil"}
# What each room may import of ours; rooms not listed here are the outer ones and may import anything.
INNER = {"types", "timeline", "units", "errors"}
MAY_IMPORT = {
    "config": INNER | {"config", "facts", "allocator"},
    "facts": INNER | {"facts"},
    "allocator": INNER | {"allocator"},
    "ghost": INNER | {"ghost", "facts", "allocator"},
    "rules": INNER | {"rules", "config", "facts", "allocator"},
}


def modules():
    return sorted(SOURCE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_the_base_modules_import_none_of_ours():
    for name in ("types.py", "timeline.py", "errors.py"):
        assert not {used for used in imports(SOURCE / name) if used.startswith("vramwise")}, name


def test_rooms_import_in_one_direction():
    wrong = []
    for path in modules():
        allowed = MAY_IMPORT.get(room(path))
        ours = (name.split(".")[1] for name in imports(path) if name.startswith("vramwise."))
        wrong += [f"{path.name} imports {name}" for name in ours if allowed is not None and name not in allowed]
    assert wrong == []


def test_nothing_but_the_outer_rooms_renders():
    outer = {"render", "cli", "train", "__main__"}
    inner = [path for path in modules() if room(path) not in outer]
    reaching = {"vramwise.render", "vramwise.cli"}
    wrong = [path.name for path in inner for name in imports(path) if name.startswith(tuple(reaching))]
    assert wrong == []


def test_no_room_but_train_imports_torch():
    heavy = {"torch", "transformers", "peft", "accelerate", "datasets"}
    users = [path for path in modules() if room(path) != "train" and {n.split(".")[0] for n in imports(path)} & heavy]
    assert users == []


def test_pure_rooms_touch_no_files_network_or_clock():
    wrong = []
    for path in modules():
        if room(path) in PURE_ROOMS:
            used = {name.split(".")[0] for name in imports(path)} & IMPURE
            wrong += [f"{path.relative_to(SOURCE)}: {name}" for name in used]
    assert wrong == []


def test_check_imports_nothing_heavy():
    config = SOURCE.parent.parent / "examples" / "qlora.yml"
    command = [sys.executable, "-X", "importtime", "-m", "vramwise", "check", str(config), "--gpu", "rtx-4090"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    names = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "yaml" in names
    assert not names & {"torch", "transformers", "huggingface_hub", "numpy", "rich"}
