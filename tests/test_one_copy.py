"""What is there once: the mechanics of writing a file, the form of a size, the judgement of growth, the computing."""

import ast
from pathlib import Path

import vramwise

SOURCE = Path(vramwise.__file__).parent


def modules():
    return sorted(path for path in SOURCE.rglob("*.py") if path.stat().st_size)


def named(path):
    return path.relative_to(SOURCE).as_posix()


def calls(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""), node


def writes(path):
    """Where a module writes a file by itself; appending to a log that is never rewritten is not meant."""
    for name, node in calls(path):
        modes = [
            one.value for one in (*node.args, *(key.value for key in node.keywords)) if isinstance(one, ast.Constant)
        ]
        opened = name == "open" and any(mode in ("w", "wb", "x", "xb", "wt", "w+", "w+b") for mode in modes)
        if opened or name in {"write_text", "write_bytes", "mkstemp", "NamedTemporaryFile", "fsync"}:
            yield f"{named(path)}:{node.lineno} {name}"


def test_files_are_written_in_one_place():
    """A sibling, made durable, renamed: files.py. The marker of a checkpoint also syncs what torch wrote."""
    exempt = {"files.py", "training/marker.py"}
    found = [place for path in modules() if named(path) not in exempt for place in writes(path)]
    assert found == []
    assert [place.split()[1] for place in writes(SOURCE / "training/marker.py")] == ["fsync"]
    assert len(list(writes(SOURCE / "files.py"))) > 2
