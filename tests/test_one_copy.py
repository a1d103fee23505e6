"""What is there once: the mechanics of writing a file, the form of a size, the judgement of growth, the computing."""

import ast
import importlib
import typing

from source_trees import SOURCE, modules, nodes, trees_for_one_file

__all__ = ["trees_for_one_file"]


def named(path):
    return path.relative_to(SOURCE).as_posix()


def calls(path):
    for node in nodes(path):
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
    """A sibling, made durable, renamed: whole_files.py. The marker of a checkpoint also syncs what torch wrote."""
    exempt = {"whole_files.py", "training/checkpoints.py"}
    found = [place for path in modules() if named(path) not in exempt for place in writes(path)]
    assert found == []
    assert [place.split()[1] for place in writes(SOURCE / "training/checkpoints.py")] == ["fsync"]
    assert len(list(writes(SOURCE / "whole_files.py"))) > 2


def formatted_sizes(path):
    """Where a module divides by MIB or GIB inside a text: a size in a form of its own."""
    for node in nodes(path):
        if isinstance(node, ast.JoinedStr):
            words = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            divides = any(isinstance(inner, ast.Div | ast.FloorDiv) for inner in ast.walk(node))
            if divides and any(unit in words for unit in ("MiB", "GiB")):
                yield f"{named(path)}:{node.lineno}"


def test_sizes_are_written_in_one_place():
    """One request of billions of GiB, which no machine has, is the one figure with its digits in groups."""
    found = [place for path in modules() if named(path) != "units.py" for place in formatted_sizes(path)]
    assert [place.split(":")[0] for place in found] == ["variants/prediction.py"]


def test_the_choice_between_mib_and_gib_is_made_in_one_place():
    both = [
        f"{named(path)}:{node.lineno}"
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.IfExp)
        and {getattr(getattr(side, "func", None), "id", "") for side in (node.body, node.orelse)} == {"gib", "mib"}
    ]
    # The ticks of an axis share one unit, whatever each of them is.
    assert [place.split(":")[0] for place in both] == ["render/train_report.py"]


def test_growth_is_judged_in_one_place():
    """Who fits a line or takes the mean of quarters judges a leak by a rule of its own."""
    fitting = [named(path) for path in modules() if any(name == "sqrt" for name, _ in calls(path))]
    assert "recordings/growth.py" in fitting
    assert not [name for name in fitting if name.split("/")[0] in ("diagnosis", "training", "render")]


def test_render_computes_nothing():
    """Of other rooms it knows types, constants, and how a size, a change or a version is told: what it shows was computed."""
    wrong = []
    for path in (SOURCE / "render").rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.Import):
                wrong += [f"{named(path)} imports {one.name}" for one in node.names if one.name.startswith("vramwise")]
            elif isinstance(node, ast.ImportFrom) and of_another_room(node.module or ""):
                found = vars(importlib.import_module(node.module))
                names = [one.name for one in node.names if one.name not in found or is_function(found[one.name])]
                wrong += [f"{named(path)} imports {name} of {node.module}" for name in names]
    assert wrong == []


def of_another_room(module):
    first, *rest = module.split(".")
    words = (["variants", "changes", "words"], ["variants", "versions"], ["types", "actions"])
    telling = rest[:1] in (["render"], ["units"]) or rest in words
    return first == "vramwise" and not telling


def is_function(value):
    """Whether it is something to call that is no type."""
    return callable(value) and not isinstance(value, type) and typing.get_origin(value) is None
