"""Objects that a script creates: instances of its own classes, and copies of objects with changed attributes."""

from __future__ import annotations

import ast
from dataclasses import replace

from vramwise.documents.python.classes import all_fields, class_of, lineage
from vramwise.documents.python.command_line import class_fields
from vramwise.documents.python.evaluate import Evaluator
from vramwise.documents.python.results import Called, Entries, Record, Result
from vramwise.documents.python.scopes import Scope, Site
from vramwise.limits.meter import charge, work

# Suffixes of library classes that scripts extend with their own defaults.
_FILLED = ("Arguments", "Config")
_COPIES = frozenset({"copy.deepcopy", "copy.copy", "deepcopy", "dataclasses.replace"})


def made_object(evaluator: Evaluator, called: Called) -> Result | None:
    """Return an instance of a class of this file, or a copy of an object; None for other calls."""
    if called.name in _COPIES and called.node.args:
        return _copy(evaluator, called)
    inner = class_of(called.node.func.id, called.site.scope) if isinstance(called.node.func, ast.Name) else None
    return _instance(evaluator, called, inner) if inner is not None else None


def _copy(evaluator: Evaluator, called: Called) -> Result | None:
    held = evaluator.evaluate(called.node.args[0], called.site)
    _, named, _ = evaluator.arguments(called)
    charge(
        len(held.assigned) if isinstance(held, Called) else len(held.items) if isinstance(held, Record | Entries) else 0
    )
    if isinstance(held, Called):
        return replace(held, assigned={**held.assigned, **named})
    return replace(held, items={**held.items, **named}) if isinstance(held, Record | Entries) else None


def _instance(evaluator: Evaluator, called: Called, inner: Scope) -> Result | None:
    """Return an instance with its default fields and the arguments of the call."""
    positional, named, _ = evaluator.arguments(called)
    line, library = lineage(inner)
    if library is not None:  # defaults of the library's class apply unless the file's class overrides them
        call = ast.copy_location(ast.Call(func=library, args=[], keywords=[]), library)
        name = evaluator.called(call, called.site)
        own_defaults = {one: held for one, held in class_fields(evaluator, inner).items() if one not in named}
        return replace(called, name=name, assigned=own_defaults) if name.endswith(_FILLED) else None
    init = next((one.functions["__init__"] for one in line if "__init__" in one.functions), None)
    fields = class_fields(evaluator, inner)
    if init is not None:
        return Record(name=called.name, items={**fields, **_attributes(evaluator, init, called)})
    given = {**dict(zip(all_fields(inner), positional, strict=False)), **named}
    made = Record(name=called.name, items={**fields, **given})
    after = next((one.functions["__post_init__"] for one in line if "__post_init__" in one.functions), None)
    if after is None:
        return made
    with evaluator.acting_as(made):
        return replace(made, items={**made.items, **_attributes(evaluator, after, called)})


def _attributes(evaluator: Evaluator, method: Scope, called: Called) -> dict[str, Result]:
    """Return the attributes that a method sets on its object: `self.x = …`."""
    work(len(method.members.get("self", ())))
    names = [name for name in method.members.get("self", ()) if name.count(".") == 1]
    site = Site(scope=method, order=2**31, caller=(called.node, called.site))
    found = {name[len("self.") :]: evaluator.lookup(name, site) for name in names}
    return {name: one for name, one in found.items() if one is not None}
