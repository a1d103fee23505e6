"""What an expression of a script comes to, by its syntax alone: names are looked up, arithmetic is done, calls of known
functions are answered. Where a condition is not known, both sides are looked at; what differs is missing.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from vramwise.documents.python.flags import decorated_default, fields_of
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
from vramwise.documents.python.scopes import (
    RETURNED,
    Binding,
    Changing,
    Condition,
    Each,
    Index,
    Scope,
    Site,
    dotted,
)

# Depth of names that lead to names, and expressions looked at in one file: far more than people write.
_DEEPEST = 60
_MOST_STEPS = 50_000
_LONGEST_TEXT = 100_000
_LARGEST_NUMBER = 2**128
_MOST_ITEMS = 1000
# A field of many columns in a format: `%100000000d`.
_WIDTH = re.compile(r"\d{4}")
_MAKE_OBJECTS = frozenset({"from_pretrained", "get_peft_model"})
_DTYPES = frozenset({"bfloat16", "float16", "half", "float32", "float", "uint8", "int8", "float8_e4m3fn"})
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitOr: operator.or_,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}

class Answer(Protocol):
    """What is known without running it."""

    def __call__(self, evaluator: Evaluator, called: Called, /) -> Result | None:
        """The answer to a call; None where it is not known."""

    def configured(self, function: ast.FunctionDef | ast.AsyncFunctionDef, /) -> Result | None:
        """What a decorator gives a function to work with (Hydra's config); None where none does."""

    def of_library(self, name: str, line: int, /) -> Result | None:
        """What a name of a library is here: `sys.argv`; None where that is not known."""



@dataclass(slots=True)
class Evaluator:
    """Evaluates expressions of one module. `said`: values that the user supplies, by name; `given`: its command line."""

    found: Index
    answer: Answer
    said: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    _steps: int = 0
    _depth: int = 0
    _open: set[tuple[int, int]] = field(default_factory=set)
    _parameters: dict[tuple[int, str], Result | None] = field(default_factory=dict)
    # Names of comprehensions.
    _local: dict[str, Result] = field(default_factory=dict)

    def evaluate(self, node: ast.expr, site: Site) -> Result:
        """What an expression is at its place."""
        self._steps += 1
        here = (id(node), site.order)
        if self._steps > _MOST_STEPS or self._depth > _DEEPEST or here in self._open:
            return Missing(name=_shown(node), line=node.lineno, why="it takes too many steps to compute")
        self._open.add(here)
        self._depth += 1
        try:
            return self._evaluated(node, site)
        finally:
            self._depth -= 1
            self._open.discard(here)

    def value(self, node: ast.expr, site: Site) -> Value | Missing:
        """The same as a plain value."""
        return plain(self.evaluate(node, site))

    def arguments(self, called: Called) -> tuple[list[Result], dict[str, Result], list[Missing]]:
        """Positional and keyword arguments of a call, `**` spread out; and what of them cannot be known."""
        positional: list[Result] = []
        named: dict[str, Result] = {}
        unknown: list[Missing] = []
        for one in called.node.args:
            if isinstance(one, ast.Starred):
                unknown.append(Missing(name=_shown(one), line=one.lineno, why="the arguments come from a list"))
            else:
                positional.append(self.evaluate(one, called.site))
        for keyword in called.node.keywords:
            found = self.evaluate(keyword.value, called.site)
            if keyword.arg is not None:
                named[keyword.arg] = found
            elif isinstance(found, Entries | Record):
                named |= found.items
                unknown += found.unknown if isinstance(found, Entries) else ()
            else:
                missing = plain(found)
                if isinstance(missing, Missing):
                    unknown.append(missing)
                elif isinstance(missing.value, dict):
                    named |= {str(key): Value(value=held) for key, held in missing.value.items()}
        return positional, named, unknown

    def _evaluated(self, node: ast.expr, site: Site) -> Result:
        if isinstance(node, ast.Constant):
            if isinstance(node.value, int) and abs(node.value) > _LARGEST_NUMBER:
                return Missing(name="a number", line=node.lineno, why="it is too large")
            return Value(value=node.value, node=node)
        if isinstance(node, ast.Name):
            return self._name(node, site)
        if isinstance(node, ast.Attribute | ast.Subscript):
            return self._member(node, site)
        if isinstance(node, ast.Call):
            return self._call(node, site)
        if isinstance(node, ast.IfExp):
            return self._either(node, site)
        if isinstance(node, ast.Dict):
            return self._dict(node, site)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return self._items(node, site)
        return self._computed(node, site)

    def _items(self, node: ast.List | ast.Tuple | ast.Set, site: Site) -> Result:
        if len(node.elts) > _MOST_ITEMS:
            return Missing(name="a list", line=node.lineno, why=f"a list of {len(node.elts)} items is not read")
        items: list[Result] = []
        for one in node.elts:
            found = self.evaluate(one.value if isinstance(one, ast.Starred) else one, site)
            if isinstance(one, ast.Starred):
                if not isinstance(found, Items):
                    return Missing(name=_shown(one), line=one.lineno, why="items come from another list")
                items += found.items
            else:
                items.append(found)
        return Items(items=tuple(items), node=node)

    def _computed(self, node: ast.expr, site: Site) -> Result:
        if isinstance(node, ast.UnaryOp):
            return self._unary(node, site)
        if isinstance(node, ast.BinOp):
            return self._combined(node, [node.left, node.right], site, _ARITHMETIC.get(type(node.op)))
        if isinstance(node, ast.Compare):
            return self._compared(node, site)
        if isinstance(node, ast.BoolOp):
            return self._boolean(node, site)
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
            return self._comprehension(node, site)
        if isinstance(node, Each):
            held = self.evaluate(node.value, site)
            sides = list(held.items) if isinstance(held, Items) else []
            return sides[0] if len(sides) == 1 else _one_of(sides, None, node.value)
        if isinstance(node, Changing):
            return Missing(name=_shown(node.value), line=node.lineno, why=f"{_shown(node.value)} changes in a loop")
        if isinstance(node, ast.JoinedStr):
            return self._text(node, site)
        if isinstance(node, ast.NamedExpr):
            return self.evaluate(node.value, site)
        return Missing(name=_shown(node), line=node.lineno, why="it is computed at run time")

    def _unary(self, node: ast.UnaryOp, site: Site) -> Result:
        inner = self.value(node.operand, site)
        if isinstance(inner, Missing):
            return inner
        if isinstance(node.op, ast.Not):
            return Value(value=not inner.value, notes=inner.notes)
        if isinstance(node.op, ast.USub) and isinstance(inner.value, int | float):
            literal = node if isinstance(node.operand, ast.Constant) else None
            return Value(value=-inner.value, node=literal, notes=inner.notes)
        return inner

    def _compared(self, node: ast.Compare, site: Site) -> Result:
        """`a < b < c` is `a < b and b < c`."""
        last: Result = Value(value=True)
        left = node.left
        for operation, right in zip(node.ops, node.comparators, strict=True):
            last = self._combined(node, [left, right], site, _COMPARISONS.get(type(operation)))
            if not isinstance(last, Value) or not last.value:
                return last
            left = right
        return last

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, site: Site) -> Result:
        """`[f"{one}_proj" for one in "qkv"]`: one loop over known items, without conditions."""
        loop = node.generators[0]
        held = self.evaluate(loop.iter, site) if len(node.generators) == 1 and not loop.ifs else None
        if not isinstance(held, Items) or not isinstance(loop.target, ast.Name) or len(held.items) > _MOST_ITEMS:
            return Missing(name=_shown(node), line=node.lineno, why="it is computed while the script runs")
        before = self._local
        made: list[Result] = []
        for one in held.items:
            self._local = {**before, loop.target.id: one}
            made.append(self.evaluate(node.elt, site))
        self._local = before
        return Items(items=tuple(made))

    def _combined(
        self, node: ast.expr, parts: list[ast.expr], site: Site, combine: Callable[[Any, Any], Any] | None
    ) -> Result:
        found = [self.evaluate(one, site) for one in parts]
        values = [plain(one) for one in found]
        lacking = next((one for one in values if isinstance(one, Missing)), None)
        if combine is None or len(values) != 2:
            return Missing(name=_shown(node), line=node.lineno, why="it is computed at run time")
        joined = _joined(found[0], found[1], combine)
        if joined is not None:
            return joined
        if lacking is not None:
            opaque = [one for one in found if isinstance(one, Called | Record) and self._truth(one)]
            none = [one for one in values if isinstance(one, Value) and one.value is None]
            if opaque and none and combine in (operator.is_, operator.is_not, operator.eq, operator.ne):
                return Value(value=combine in (operator.is_not, operator.ne))
            return lacking
        left, right = [one.value for one in values if isinstance(one, Value)]
        if _too_large(combine, left, right):
            return Missing(name=_shown(node), line=node.lineno, why="its result would be too large")
        try:
            result = combine(left, right)
        except Exception:
            return Missing(name=_shown(node), line=node.lineno, why="it cannot be computed from known values")
        notes = tuple(dict.fromkeys(note for one in values if isinstance(one, Value) for note in one.notes))
        return Value(value=result, notes=notes)

    def _boolean(self, node: ast.BoolOp, site: Site) -> Result:
        notes: tuple[str, ...] = ()
        last: Result = Value(value=None)
        stops = isinstance(node.op, ast.Or)
        for one in node.values:
            last = self.evaluate(one, site)
            if stops and isinstance(last, Missing) and last.environment and one is not node.values[-1]:
                notes += (f"{last.name} is not set (line {last.line})",)
                continue
            truth = self._truth(last)
            if truth is None:
                return last if isinstance(last, Missing) else plain(last)
            notes += last.notes if isinstance(last, Value) else ()
            if truth is stops:
                break
        return replace(last, notes=tuple(dict.fromkeys(notes))) if isinstance(last, Value) else last

    def _truth(self, result: Result) -> bool | None:
        """Whether a result counts as true; None where that is not known. Objects do; what functions give is open."""
        if isinstance(result, Called):
            return True if result.last[:1].isupper() or result.last in _MAKE_OBJECTS else None
        if isinstance(result, Record):
            return None if result.open else True
        found = plain(result)
        return None if isinstance(found, Missing) else bool(found.value)

    def _text(self, node: ast.JoinedStr, site: Site) -> Result:
        parts: list[str] = []
        notes: tuple[str, ...] = ()
        for one in node.values:
            inner = one.value if isinstance(one, ast.FormattedValue) else one
            found = self.value(inner, site)
            if isinstance(found, Missing):
                return found
            parts.append(str(found.value))
            notes += found.notes
        return Value(value="".join(parts)[:_LONGEST_TEXT], notes=tuple(dict.fromkeys(notes)))

    def _dict(self, node: ast.Dict, site: Site) -> Result:
        if len(node.values) > _MOST_ITEMS:
            return Missing(name="a mapping", line=node.lineno, why=f"a mapping of {len(node.values)} is not read")
        items: dict[str, Result] = {}
        unknown: list[Missing] = []
        for key, held in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = self.evaluate(held, site)
                items |= inner.items if isinstance(inner, Entries | Record) else {}
                lacking = None if isinstance(inner, Entries | Record) else plain(inner)
                unknown += [lacking] if isinstance(lacking, Missing) else []
                continue
            name = self.value(key, site)
            if isinstance(name, Value) and isinstance(name.value, str | int):
                items[str(name.value)] = self.evaluate(held, site)
            elif isinstance(name, Missing):
                unknown.append(name)
        return Entries(items=items, node=node, unknown=tuple(unknown))

    def _either(self, node: ast.IfExp, site: Site) -> Result:
        test = self.evaluate(node.test, site)
        truth = self._truth(test)
        if truth is None:
            sides = [self.evaluate(one, site) for one in (node.body, node.orelse)]
            return _one_of(sides, plain(test), node)
        chosen = self.evaluate(node.body if truth else node.orelse, site)
        return _noted(chosen, test)

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
            return Record(name=imported, items={}, open=True)
        held = self._class(node.id, site.scope)
        if held is not None:
            return held
        return Missing(name=node.id, line=node.lineno, why=f"{node.id} is not defined in this file")

    def _class(self, name: str, scope: Scope | None) -> Record | None:
        """A class of the file as a holder of its attributes."""
        while scope is not None and name not in scope.classes:
            scope = scope.parent
        if scope is None:
            return None
        inner = scope.classes[name]
        outer = Site(scope=inner, order=2**31)
        fields = {one: default for one, default, _ in fields_of(inner) if default is not None}
        return Record(name=name, items={one: self.evaluate(default, outer) for one, default in fields.items()})

    def lookup(self, name: str, site: Site) -> Result | None:
        """What a name, or `name.attribute`, is bound to at a place; None where nothing binds it."""
        scope: Scope | None = site.scope
        here = site
        while scope is not None:
            bindings = scope.bindings.get(name, [])
            known = [one for one in bindings if scope is not site.scope or one.order < site.order]
            found = self._bound(known, here) if known else None
            if found is not None:
                return found
            if name.startswith("self.") and isinstance(scope.node, ast.ClassDef):
                found = self._of_self(scope, name)
                if found is not None:
                    return found
            if "." not in name and isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef):
                parameter = self._parameter(scope, name, here)
                if parameter is not None:
                    return parameter
            scope = scope.parent
            here = Site(scope=scope, order=2**31) if scope is not None else here
        return None

    def _of_self(self, scope: Scope, name: str) -> Result | None:
        """An attribute of the object that some method of its class sets."""
        for method in scope.functions.values():
            bindings = method.bindings.get(name)
            if bindings:
                return self._bound(bindings, Site(scope=method, order=2**31))
        return None

    def _bound(self, bindings: list[Binding], site: Site) -> Result | None:
        """The last of the bindings that holds at a place; where branches are open, what all agree on."""
        sides: list[Result] = []
        test: Missing | None = None
        for one in reversed(bindings):
            holds, why = self._holds(one.under, site)
            if holds is False:
                continue
            result = self._of_binding(one, site)
            sides.append(result)
            if holds:
                break
            test = test or why
        if not sides:
            return None
        return sides[0] if len(sides) == 1 and test is None else _one_of(sides, test, bindings[-1].value)

    def _of_binding(self, one: Binding, site: Site) -> Result:
        result = self.evaluate(one.value, replace(site, order=one.order, under=one.under))
        if isinstance(one.value, Each):
            result = _named(result, one.target)
        for place in one.part:
            if isinstance(result, Items) and place < len(result.items):
                result = result.items[place]
            elif isinstance(result, Called):
                return replace(result, name=f"{result.name}[{place}]") if place else result
            elif isinstance(result, Value | Record | Entries | Items):
                return Missing(name=one.target, line=one.value.lineno, why="it is unpacked from something else")
        return self._with_attributes(one, result, site)

    def _with_attributes(self, one: Binding, result: Result, site: Site) -> Result:
        """A call's result with the attributes that later statements assign to its name."""
        if not isinstance(result, Called | Record | Entries) or "." in one.target:
            return result
        later: dict[str, Result] = {}
        for name, bindings in site.scope.bindings.items():
            if name.startswith(f"{one.target}."):
                rest = name[len(one.target) + 1 :]
                held = [binding for binding in bindings if binding.order > one.order]
                if held:
                    found = self._bound(held, replace(site, order=2**31, under=one.under))
                    later |= {rest: found} if found is not None else {}
        if not later:
            return result
        if isinstance(result, Record | Entries):
            return replace(result, items={**result.items, **later})
        return replace(result, assigned={**result.assigned, **later})

    def _holds(self, under: tuple[Condition, ...], site: Site) -> tuple[bool | None, Missing | None]:
        """Whether conditions hold; those of the place itself do. With what is missing to tell."""
        given = {(id(test), truth) for test, truth, _ in site.under}
        unknown: Missing | None = None
        for test, truth, order in under:
            if (id(test), truth) in given:
                continue
            if (id(test), not truth) in given:
                return False, None
            found = self.evaluate(test, replace(site, order=order, under=()))
            known = self._truth(found)
            if known is None:
                missing = plain(found)
                unknown = unknown or (missing if isinstance(missing, Missing) else None)
                unknown = unknown or Missing(name=_shown(test), line=test.lineno, why="the condition is unknown")
            elif known is not truth:
                return False, None
        return (True, None) if unknown is None else (None, unknown)

    def holds(self, site: Site) -> bool | None:
        """Whether the branches that lead to a place are taken; None where that is not known."""
        return self._holds(site.under, replace(site, under=()))[0]

    def _parameter(self, scope: Scope, name: str, site: Site) -> Result | None:
        """What a parameter of a function is given: by the call that is followed, by its one call, else its default."""
        if site.caller is not None and scope is site.scope:
            return self._given(scope, name, [site.caller])
        key = (id(scope), name)
        if key not in self._parameters:
            self._parameters[key] = None  # while it is looked for
            self._parameters[key] = self._given(scope, name, None)
        return self._parameters[key]

    def _given(self, scope: Scope, name: str, calls: list[tuple[ast.Call, Site]] | None) -> Result | None:
        function = scope.node
        assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        spec = function.args
        names = [one.arg for one in (*spec.posonlyargs, *spec.args)]
        called = function.name
        if called == "__init__" and scope.parent is not None and isinstance(scope.parent.node, ast.ClassDef):
            called = scope.parent.node.name
        calls = self._calls_of(called) if calls is None else calls
        if spec.kwarg is not None and name == spec.kwarg.arg and len(calls) <= 1:
            own = {*names, *(one.arg for one in spec.kwonlyargs)}
            return self._others(calls[0], own) if calls else self._rest_of_command_line(own)
        if name not in names and name not in [one.arg for one in spec.kwonlyargs]:
            return None
        default = _default(spec, name)
        given = [self._passed(call, site, names, name) for call, site in calls]
        passed = [one for one in given if one is not None]
        if passed and (len(passed) == len(given) or default is None):
            return passed[0] if len(passed) == 1 else _named(_one_of(passed, None, function), name)
        if name in self.given and not passed:  # fire, typer and click fill parameters from the command line
            return Value(value=self.given[name], notes=(f"--{name} = {self.given[name]!r} (--args)",))
        configured = self.answer.configured(function)
        if configured is not None and names[:1] == [name]:
            return configured
        click_default, decorated = decorated_default(function, name)
        if decorated and click_default is None:
            return Missing(name=name, line=function.lineno, why=f"{name} is given on the command line")
        default = click_default or default
        if default is not None:
            outer = Site(scope=scope.parent or scope, order=2**31)
            found = self.evaluate(_inner_default(default), outer)
            return _noted(found, note=f"{name} of {function.name}() has its default (line {function.lineno})")
        return Missing(name=name, line=function.lineno, why=f"{name} is a parameter of {function.name}()")

    def _rest_of_command_line(self, names: set[str]) -> Entries:
        """What `**kwargs` of a function holds that fire or the like calls."""
        rest = {key: value for key, value in self.given.items() if key not in names}
        return Entries(
            items={key: Value(value=value, notes=(f"--{key} = {value!r} (--args)",)) for key, value in rest.items()}
        )

    def _others(self, call: tuple[ast.Call, Site], names: set[str]) -> Entries:
        """What `**kwargs` of a function holds: the keywords of its call that have no parameter of their own."""
        node, site = call
        _, named, unknown = self.arguments(Called(name="", node=node, site=site))
        return Entries(items={key: one for key, one in named.items() if key not in names}, unknown=tuple(unknown))

    def _calls_of(self, name: str) -> list[tuple[ast.Call, Site]]:
        return [
            (call, site)
            for call, site in self.found.calls
            if isinstance(call.func, ast.Name | ast.Attribute) and (dotted(call.func) or "").rpartition(".")[2] == name
        ]

    def _passed(self, call: ast.Call, site: Site, names: list[str], name: str) -> Result | None:
        for keyword in call.keywords:
            if keyword.arg == name:
                return self.evaluate(keyword.value, site)
            if keyword.arg is None:
                spread = self.evaluate(keyword.value, site)
                if isinstance(spread, Entries | Record) and name in spread.items:
                    return spread.items[name]
        ordered = names[1:] if names[:1] == ["self"] else names
        place = ordered.index(name) if name in ordered else len(call.args)
        if place < len(call.args) and not isinstance(call.args[place], ast.Starred):
            return self.evaluate(call.args[place], site)
        return None

    def _member(self, node: ast.Attribute | ast.Subscript, site: Site) -> Result:
        """`a.b` or `a["b"]`: assigned by itself, an attribute of what `a` is, or an item."""
        name = dotted(node)
        if name is not None:
            if name in self.said or name.rpartition(".")[2] in self.said:
                value = self.said.get(name, self.said.get(name.rpartition(".")[2]))
                return Value(value=value, notes=(f"{name} = {value!r} (--set)",))
            found = self.lookup(name, site)
            if found is not None:
                return found
        holder = self.evaluate(node.value, site)
        key = node.attr if isinstance(node, ast.Attribute) else self.value(node.slice, site)
        if isinstance(key, Missing):
            return key
        return self._item(holder, key if isinstance(key, str) else key.value, node)

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
        if isinstance(holder, Value) and isinstance(holder.value, dict | list | str | tuple):
            try:
                return Value(value=holder.value[key], notes=holder.notes)
            except (KeyError, IndexError, TypeError):
                pass
        if isinstance(holder, Missing):
            return replace(holder, name=str(key) if str(key).isidentifier() else _shown(node))
        if isinstance(holder, Called) and FROM_COMMAND_LINE in holder.notes:
            return Missing(name=str(key), line=node.lineno, why=f"--{key} is given on the command line")
        name = str(key) if str(key).isidentifier() else _shown(node)
        return Missing(name=name, line=node.lineno, why=f"{_shown(node)} is set at run time")

    def _of_library(self, name: str, node: ast.expr) -> Result:
        """`torch.bfloat16` is a type by its name; a variable of the environment is given from outside."""
        known = self.answer.of_library(name, node.lineno)
        if known is not None:
            return known
        holder, _, last = name.rpartition(".")
        if holder == "torch" and last in _DTYPES:
            return Value(value=last, node=node)
        if holder == "os.environ":
            return Missing(name=last, line=node.lineno, why=f"{last} is an environment variable")
        return Record(name=name, items={}, open=True)

    def _call(self, node: ast.Call, site: Site) -> Result:
        called = Called(name=self.called(node, site), node=node, site=site)
        answered = self.answer(self, called)
        if answered is not None:
            return answered
        if isinstance(node.func, ast.Name):
            made = self.returned(node.func.id, site, node)
            if made is not None:
                return made
        return called

    def returned(self, name: str, site: Site, call: ast.Call | None = None) -> Result | None:
        """What a function of this file returns for a call; None where it is none or returns nothing."""
        scope: Scope | None = site.scope
        while scope is not None and name not in scope.functions:
            scope = scope.parent
        if scope is None or RETURNED not in scope.functions[name].bindings:
            return None
        inner = scope.functions[name]
        caller = None if call is None else (call, site)
        return self._bound(inner.bindings[RETURNED], Site(scope=inner, order=2**31, caller=caller))

    def called(self, node: ast.Call, site: Site) -> str:
        """The name of what is called, through imports: `transformers.AutoModelForCausalLM.from_pretrained`."""
        name = dotted(node.func) or _shown(node.func)
        first, dot, rest = name.partition(".")
        imported = self.imported(first, site.scope)
        return f"{imported}{dot}{rest}" if imported is not None else name

    def imported(self, name: str, scope: Scope | None) -> str | None:
        """What a name was imported as."""
        while scope is not None:
            if name in scope.imports:
                return scope.imports[name]
            scope = scope.parent
        return None


def _default(spec: ast.arguments, name: str) -> ast.expr | None:
    ordered = [*spec.posonlyargs, *spec.args]
    for argument, default in zip(reversed(ordered), reversed(spec.defaults), strict=False):
        if argument.arg == name:
            return default
    for argument, held in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        if argument.arg == name:
            return held
    return None


def _inner_default(default: ast.expr) -> ast.expr:
    """`typer.Option(8)` has the default 8."""
    if isinstance(default, ast.Call) and (dotted(default.func) or "").rpartition(".")[2] in ("Option", "Argument"):
        named = next((one.value for one in default.keywords if one.arg == "default"), None)
        return named or (default.args[0] if default.args else default)
    return default


def _one_of(sides: list[Result], test: Value | Missing | None, node: ast.AST) -> Result:
    """What all sides agree on; else Missing, with both values."""
    values = [plain(one) for one in sides]
    known = [one for one in values if isinstance(one, Value)]
    first = known[0].value if known else None
    if (
        known
        and len(known) == len(sides)
        and all(type(one.value) is type(first) and one.value == first for one in known)
    ):
        return known[0]
    calls = [one for one in sides if isinstance(one, Called)]
    if len(sides) > 1 and all(isinstance(one, Entries) for one in sides):
        return _entry_by_entry([one for one in sides if isinstance(one, Entries)], test, node)
    if calls and len(calls) == len(sides) and all(one.node is calls[0].node for one in calls):
        return calls[0]
    line = getattr(node, "lineno", 0)
    name = test.name if isinstance(test, Missing) else _shown(node)
    why = test.why if isinstance(test, Missing) else "several values are possible"
    either = tuple(one.value for one in known)
    return Missing(name=name, line=line, why=why, either=either, sides=tuple(calls))


def _entry_by_entry(sides: list[Entries], test: Value | Missing | None, node: ast.AST) -> Entries:
    """Mappings of which one is meant: what all agree on, key by key."""
    absent = Missing(name="", line=0, why="")
    items: dict[str, Result] = {}
    for key in dict.fromkeys(key for side in sides for key in side.items):
        items[key] = _one_of([side.items.get(key, absent) for side in sides], test, node)
    return Entries(items=items, unknown=tuple(one for side in sides for one in side.unknown))


def _joined(left: Result, right: Result, combine: Callable[[Any, Any], Any]) -> Result | None:
    """Two mappings or two lists as one, whatever is in them; None for all else."""
    if combine is operator.or_ and isinstance(left, Entries) and isinstance(right, Entries):
        return Entries(items={**left.items, **right.items}, unknown=(*left.unknown, *right.unknown))
    if combine is operator.add and isinstance(left, Items) and isinstance(right, Items):
        return Items(items=(*left.items, *right.items)[:_MOST_ITEMS])
    return None


def _named(result: Result, name: str) -> Result:
    return replace(result, name=name) if isinstance(result, Missing) else result


def _noted(result: Result, test: Result | None = None, note: str = "") -> Result:
    """A result with what had to be assumed to come to it."""
    notes = (*(test.notes if isinstance(test, Value) else ()), *([note] if note else []))
    if not notes or not isinstance(result, Value | Called):
        return result
    return replace(result, notes=tuple(dict.fromkeys((*result.notes, *notes))))


def _too_large(combine: Callable[[Any, Any], Any], left: Any, right: Any) -> bool:
    if combine is operator.pow:
        return not (abs(right) <= 64 and abs(left) <= 1_000_000 if _numbers(left, right) else False)
    if combine is operator.mul and not _numbers(left, right):
        sized = [size(one) for one in (left, right) if isinstance(one, str | list | tuple)]
        counts = [one for one in (left, right) if isinstance(one, int)]
        return bool(sized and counts) and sized[0] * abs(counts[0]) > _LONGEST_TEXT
    if combine is operator.mod and isinstance(left, str):
        return _WIDTH.search(left) is not None
    if combine is operator.add and not _numbers(left, right):
        return size(left) + size(right) > _LONGEST_TEXT
    return any(isinstance(one, int) and abs(one) > _LARGEST_NUMBER for one in (left, right))


def size(value: Any) -> int:
    """Characters and items that a value is made of, counted up to a bound."""
    waiting, found = [value], 0
    while waiting and found <= _LONGEST_TEXT:
        one = waiting.pop()
        if isinstance(one, str | bytes):
            found += len(one)
        elif isinstance(one, list | tuple | set | frozenset):
            found += len(one)
            waiting.extend(one)
        elif isinstance(one, Mapping):
            found += len(one)
            waiting.extend(one.values())
        else:
            found += 1
    return found


def _numbers(*values: Any) -> bool:
    return all(isinstance(one, int | float) for one in values)


def _shown(node: ast.AST) -> str:
    """An expression as it is written, cut to a few words."""
    try:
        text = (
            ast.unparse(node)
            if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)
            else node.__class__.__name__
        )
    except (RecursionError, ValueError, AttributeError):
        return "an expression"
    return text if len(text) <= 60 else f"{text[:57]}…"
