"""Evaluates expressions of a script by their syntax: names, arithmetic, and calls of known functions.

If a condition is unknown, both branches are evaluated; what differs between them is missing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from vramwise.documents.python.classes import all_fields, class_of, enclosing_class, lineage
from vramwise.documents.python.combine import LARGEST_NUMBER, shown
from vramwise.documents.python.expressions import Expressions
from vramwise.documents.python.growth import as_text
from vramwise.documents.python.results import (
    FROM_COMMAND_LINE,
    Called,
    Entries,
    Items,
    Missing,
    Record,
    Result,
    Value,
    plain,
)
from vramwise.documents.python.scopes import RETURNED, Scope, Site, dotted
from vramwise.limits.meter import TooLarge, charge, work

# The depth of name lookups: far more than real scripts need.
_DEEPEST = 60
_LONGEST_NAME = 200
_DTYPES = ("bfloat16", "float16", "half", "float32", "float", "uint8", "int8", "float8_e4m3fn")
_WHOLE = ("uint8", "int8")


class Evaluator(Expressions):
    """Evaluates expressions of one module."""

    __slots__ = ()

    def evaluate(self, node: ast.expr, site: Site) -> Result:
        """Return the result of an expression at its place."""
        here = (id(node), site.order)
        if self._depth > _DEEPEST or here in self._open:
            return Missing(name=shown(node), line=node.lineno, why="it takes too many steps to compute")
        if not self._depth:
            self.meter.begin_value()
        self._open.add(here)
        self._depth += 1
        try:
            self.meter.step(node.lineno)
            return self._evaluated(node, site)
        except TooLarge as error:
            return Missing(name=shown(node), line=node.lineno, why=str(error))
        finally:
            self._depth -= 1
            self._open.discard(here)

    def arguments(self, called: Called) -> tuple[list[Result], dict[str, Result], list[Missing]]:
        """Return the positional and keyword arguments of a call, with `**` expanded, and what is unknown."""
        positional: list[Result] = []
        named: dict[str, Result] = {}
        unknown: list[Missing] = []
        for one in called.node.args:
            if isinstance(one, ast.Starred):
                unknown.append(Missing(name=shown(one), line=one.lineno, why="the arguments come from a list"))
            else:
                positional.append(self.evaluate(one, called.site))
        for keyword in called.node.keywords:
            found = self.evaluate(keyword.value, called.site)
            if keyword.arg is not None:
                named[keyword.arg] = found
            elif isinstance(found, Entries | Record):
                charge(len(found.items))
                named |= found.items
                unknown += found.unknown if isinstance(found, Entries) else ()
            else:
                missing = plain(found)
                if isinstance(missing, Missing):
                    unknown.append(missing)
                elif isinstance(missing.value, dict):
                    charge(as_text(missing.value))
                    named |= {str(key): Value(value=held) for key, held in missing.value.items()}
        return positional, named, unknown

    def _evaluated(self, node: ast.expr, site: Site) -> Result:
        if isinstance(node, ast.Constant):
            if isinstance(node.value, int) and abs(node.value) > LARGEST_NUMBER:
                return Missing(name="a number", line=node.lineno, why="it is too large")
            return Value(value=node.value, node=node)
        if isinstance(node, ast.Name):
            return self._name(node, site)
        if isinstance(node, ast.Attribute | ast.Subscript):
            return self._member(node, site)
        if isinstance(node, ast.Call):
            return self._call(node, site)
        if isinstance(node, ast.IfExp):
            return self.either(node, site)
        if isinstance(node, ast.Dict):
            return self.mapping(node, site)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return self.items(node, site)
        return self.computed(node, site)

    def _name(self, node: ast.Name, site: Site) -> Result:
        if node.id in self._local:
            return self._local[node.id]
        if node.id in self.said:
            return Value(value=self.said[node.id], notes=(f"{node.id} = {self.said[node.id]!r} (--set)",))
        found = self.lookup(node.id, site)
        if found is not None:
            return found
        imported = self.imported(node.id, site.scope)
        if imported is not None:
            return Record(name=imported, items={}, open=True, line=node.lineno)
        held = self._class(node.id, site.scope)
        if held is not None:
            return held
        return Missing(name=node.id, line=node.lineno, why=f"{node.id} is not defined in this file")

    def _class(self, name: str, scope: Scope | None) -> Record | None:
        """Return a class of the file as a record of its attributes, or None."""
        inner = class_of(name, scope)
        if inner is None:
            return None
        fields = {key: one for key, one in all_fields(inner).items() if one.default is not None}
        return Record(
            name=name,
            items={
                key: self.evaluate(one.default, Site(scope=one.scope, order=2**31))
                for key, one in fields.items()
                if one.default is not None
            },
        )

    def _member(self, node: ast.Attribute | ast.Subscript, site: Site) -> Result:
        """Evaluate `a.b` or `a["b"]`: an own assignment, an attribute of `a`, or an item."""
        name = dotted(node)
        if name is not None:
            work(len(name))
            if name in self.said or name.rpartition(".")[2] in self.said:
                value = self.said.get(name, self.said.get(name.rpartition(".")[2]))
                return Value(value=value, notes=(f"{name} = {value!r} (--set)",))
            first = name.partition(".")[0]
            found = None if first in self._local else self.lookup(name, site)
            if found is not None:
                return found
        holder = self.evaluate(node.value, site)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and isinstance(holder, Items):
            return self._part(holder, node.slice, site)
        key = node.attr if isinstance(node, ast.Attribute) else self.value(node.slice, site)
        if isinstance(key, Missing):
            return key
        key = key if isinstance(key, str) else key.value
        charge(as_text(key))
        return self._item(holder, key, node)

    def _part(self, holder: Items, part: ast.Slice, site: Site) -> Result:
        """Evaluate `a[1:3]` of a list or tuple."""
        ends = [None if one is None else self.value(one, site) for one in (part.lower, part.upper, part.step)]
        known = [one.value if isinstance(one, Value) else None for one in ends]
        if any(isinstance(one, Missing) for one in ends) or any(type(one) not in (int, type(None)) for one in known):
            return Missing(name=shown(part), line=part.lineno, why="a part of a list is taken that is not known")
        return Items(items=holder.items[slice(*known)])

    def attribute(self, node: ast.expr, name: str, site: Site) -> Result:
        """Return an attribute of an expression at a place."""
        return self._member(ast.copy_location(ast.Attribute(value=node, attr=name, ctx=ast.Load()), node), site)

    def _item(self, holder: Result, key: Any, node: ast.Attribute | ast.Subscript) -> Result:
        if isinstance(holder, Entries | Record) and str(key) in holder.items:
            return holder.items[str(key)]
        if isinstance(holder, Called):
            if str(key) in holder.assigned:
                return holder.assigned[str(key)]
            passed = next((one.value for one in holder.node.keywords if one.arg == str(key)), None)
            if passed is not None and isinstance(node, ast.Attribute) and holder.last[:1].isupper():
                return self.evaluate(passed, holder.site)
            known = self.answer(self, replace(holder, name=f"{holder.name}.{key}", attribute=True))
            if known is not None:
                return known
        if isinstance(holder, Items) and isinstance(key, int) and -len(holder.items) <= key < len(holder.items):
            return holder.items[key]
        if isinstance(holder, Record) and holder.open:
            return self._of_library(f"{holder.name}.{key}", node)
        if isinstance(holder, Value) and key == "is_floating_point" and holder.value in _DTYPES:
            return Value(value=holder.value not in _WHOLE, notes=holder.notes)
        if isinstance(holder, Value) and key == "type" and isinstance(holder.value, str):  # of a torch.device
            return replace(holder, value=holder.value.partition(":")[0], node=None, word="")
        if isinstance(holder, Value) and isinstance(holder.value, dict | list | str | tuple):
            try:
                return Value(value=holder.value[key], notes=holder.notes)
            except (KeyError, IndexError, TypeError):
                pass
        name = key if isinstance(key, str) and len(key) <= _LONGEST_NAME and key.isidentifier() else shown(node)
        if isinstance(holder, Missing):
            return replace(holder, name=name)
        if isinstance(holder, Called) and FROM_COMMAND_LINE in holder.notes:
            return Missing(name=name, line=node.lineno, why=f"--{name} is given on the command line")
        return Missing(name=name, line=node.lineno, why=f"{shown(node)} is set at run time")

    def _of_library(self, name: str, node: ast.expr) -> Result:
        """Evaluate a name of a library: `torch.bfloat16` is a dtype, an environment variable is missing."""
        known = self.answer.of_library(name, node.lineno)
        if known is not None:
            return known
        holder, _, last = name.rpartition(".")
        if holder == "torch" and last in _DTYPES:
            return Value(value=last, node=node)
        if holder == "os.environ":
            return Missing(name=last, line=node.lineno, why=f"{last} is an environment variable")
        return Record(name=name, items={}, open=True, line=node.lineno)

    def _call(self, node: ast.Call, site: Site) -> Result:
        called = Called(name=self.called(node, site), node=node, site=site)
        answered = self.answer(self, called)
        if answered is not None:
            return answered
        if isinstance(node.func, ast.Name):
            made = self.returned(node.func.id, site, node)
            if made is not None:
                return made
        if isinstance(node.func, ast.Attribute) and (name := dotted(node.func)) is not None:
            made = self.returned(name, site, node)  # of another module
            if made is not None:
                return made
        if isinstance(node.func, ast.Attribute) and dotted(node.func.value) in ("self", "cls"):
            return self._of_method(node.func.attr, node, site) or called
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            return self._of_instance(called, node.func) or called
        return called

    @contextmanager
    def acting_as(self, holder: Record) -> Iterator[None]:
        """Make `self` refer to this object inside the block."""
        before = self._local
        self._local = {**before, "self": holder}
        try:
            yield
        finally:
            self._local = before

    def _of_instance(self, called: Called, function: ast.Attribute) -> Result | None:
        """Return the result of a method of an object or class of this file, or None."""
        holder = self.evaluate(function.value, called.site)
        if not isinstance(holder, Record) or holder.open:
            return None
        inner = class_of(holder.name, called.site.scope)
        for one in lineage(inner)[0] if inner is not None else []:
            if function.attr in one.functions:
                method = one.functions[function.attr]
                site = Site(scope=method, order=2**31, caller=(called.node, called.site))
                with self.acting_as(holder):
                    return self._bound(method.bindings.get(RETURNED, []), site)
        return None

    def _of_method(self, name: str, call: ast.Call, site: Site) -> Result | None:
        """Return the result of a method of the same object, or None."""
        owner = enclosing_class(site.scope)
        for one in lineage(owner)[0] if owner is not None else []:
            inner = one.functions.get(name)
            if inner is not None:
                returned = inner.bindings.get(RETURNED, [])
                return self._bound(returned, Site(scope=inner, order=2**31, caller=(call, site)))
        return None

    def returned(self, name: str, site: Site, call: ast.Call | None = None) -> Result | None:
        """Return what a function of this file returns for a call; None if it is not one or returns nothing."""
        scope: Scope | None = site.scope
        while scope is not None and name not in scope.functions:
            scope = scope.parent
        if scope is None or RETURNED not in scope.functions[name].bindings:
            return None
        inner = scope.functions[name]
        caller = None if call is None else (call, site)
        return self._bound(inner.bindings[RETURNED], Site(scope=inner, order=2**31, caller=caller))

    def called(self, node: ast.Call, site: Site) -> str:
        """Return the full name of what is called, through imports.

        `transformers.AutoModelForCausalLM.from_pretrained`, for example.
        """
        name = dotted(node.func) or shown(node.func)
        if isinstance(node.func, ast.Attribute) and name.endswith("…"):  # only the method's name matters
            name = f"{shown(node.func.value)}.{node.func.attr}"
        first, dot, rest = name.partition(".")
        imported = self.imported(first, site.scope)
        return f"{imported}{dot}{rest}" if imported is not None else name

    def imported(self, name: str, scope: Scope | None) -> str | None:
        """Return the full name that a name was imported from, or None."""
        while scope is not None:
            if name in scope.imports:
                return scope.imports[name]
            scope = scope.parent
        return None
