"""Looks up what names are bound to at a place of a script: conditional assignments, parameters, attributes."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from vramwise.documents.python.classes import lineage
from vramwise.documents.python.combine import (
    defaults_of,
    inner_default,
    named_as,
    noted,
    one_of,
    parts_of,
    shown,
)
from vramwise.documents.python.flags import decorated_default
from vramwise.documents.python.results import Called, Entries, Items, Missing, Record, Result, Value, plain
from vramwise.documents.python.scopes import Binding, Branch, Each, Index, Scope, Site, branches, dotted
from vramwise.limits.meter import Meter, charge, current, work


class Answer(Protocol):
    """Answers calls without running them."""

    def __call__(self, evaluator: Any, called: Called, /) -> Result | None:
        """Return the result of a call; None if unknown."""

    def configured(self, function: ast.FunctionDef | ast.AsyncFunctionDef, /) -> Result | None:
        """Return what a decorator passes to a function (Hydra's config), or None."""

    def dispatched(self, evaluator: Any, name: str, /) -> Result | None:
        """Return what argparse passes to a function that `set_defaults(func=…)` names, or None."""

    def of_library(self, name: str, line: int, /) -> Result | None:
        """Return the value of a library's name such as `sys.argv`; None if unknown."""


@dataclass(slots=True)
class Names(ABC):
    """Looks up names in one module. `said`: values that the user supplies, by name. `given`: the command line."""

    found: Index
    answer: Answer
    said: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    meter: Meter = field(default_factory=current)
    _depth: int = 0
    _open: set[tuple[int, int]] = field(default_factory=set)
    _parameters: dict[tuple[int, str], Result | None] = field(default_factory=dict)
    # Names bound by comprehensions.
    _local: dict[str, Result] = field(default_factory=dict)

    @abstractmethod
    def evaluate(self, node: ast.expr, site: Site) -> Result:
        """Return the result of an expression at its place."""

    @abstractmethod
    def truth(self, result: Result) -> bool | None:
        """Return whether a result counts as true; None if unknown."""

    @abstractmethod
    def arguments(self, called: Called) -> tuple[list[Result], dict[str, Result], list[Missing]]:
        """Return the positional and keyword arguments of a call, and what is unknown."""

    def lookup(self, name: str, site: Site) -> Result | None:
        """Return what a name, or `name.attribute`, is bound to at a place; None if nothing binds it."""
        scope: Scope | None = site.scope
        here = site
        while scope is not None:
            bindings = scope.bindings.get(name, [])
            work(len(bindings))
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
        """Return an attribute that a method of the class, or the class itself, sets; None if none does."""
        for one in lineage(scope)[0]:
            work(len(one.functions))
            for method in one.functions.values():
                bindings = method.bindings.get(name)
                if bindings:
                    return self._bound(bindings, Site(scope=method, order=2**31))
        for one in lineage(scope)[0]:
            bindings = one.bindings.get(name.removeprefix("self."))
            if bindings:
                return self._bound(bindings, Site(scope=one, order=2**31))
        return None

    def _before(self, result: Result, name: str, later: Binding) -> Result:
        """Return an attribute's value before later statements assigned it, in case none of their branches is taken."""
        if isinstance(result, Record | Entries) and name in result.items:
            return result.items[name]
        passed = [one.value for one in result.node.keywords if one.arg == name] if isinstance(result, Called) else []
        if isinstance(result, Called) and passed:
            return self.evaluate(passed[0], result.site)
        return Missing(name=name, line=later.value.lineno, why=f"{name} is set under a condition")

    def _bound(self, bindings: list[Binding], site: Site, otherwise: Result | None = None) -> Result | None:
        """Return the last binding that holds at a place; if branches are unknown, what all agree on.

        `otherwise`: the result if no branch is taken.
        """
        sides: list[Result] = []
        notes: list[str] = []
        test: Missing | None = None
        for one in reversed(bindings):
            holds, why = self._holds(one.under, site, notes)
            if holds is False:
                continue
            result = self._of_binding(one, site)
            sides.append(result)
            if holds:
                break
            test = test or why
        else:
            sides += [otherwise] if sides and otherwise is not None else []
        if not sides:
            return None
        if len(sides) > 1 or test is not None:
            return one_of(sides, test, bindings[-1].value)
        return noted(sides[0], notes=tuple(notes))

    def _of_binding(self, one: Binding, site: Site) -> Result:
        result = noted(self.evaluate(one.value, replace(site, order=one.order, under=one.under)), note=one.note)
        if isinstance(one.value, Each):
            result = named_as(result, one.target)
        for place in one.part:
            if isinstance(result, Missing):
                result = replace(result, either=parts_of(result.either, place))
            if isinstance(result, Items) and place < len(result.items):
                result = result.items[place]
            elif isinstance(result, Called):
                return replace(result, name=f"{result.name}[{place}]") if place else result
            elif isinstance(result, Value | Record | Entries | Items):
                return Missing(name=one.target, line=one.value.lineno, why="it is unpacked from something else")
        return self._with_attributes(one, result, site)

    def _with_attributes(self, one: Binding, result: Result, site: Site) -> Result:
        """Return an object with the attributes that later statements assign to its name."""
        if not isinstance(result, Called | Record | Entries) or "." in one.target:
            return result
        later: dict[str, Result] = {}
        members = site.scope.members.get(one.target, ())
        work(len(members))
        for name in members:
            if name.startswith(f"{one.target}."):
                rest = name[len(one.target) + 1 :]
                bindings = site.scope.bindings[name]
                work(len(bindings))
                held = [binding for binding in bindings if one.order < binding.order < site.order]
                if held:
                    otherwise = self._before(result, rest, held[0])
                    found = self._bound(held, replace(site, order=2**31, under=one.under), otherwise)
                    later |= {rest: found} if found is not None else {}
        if not later:
            return result
        charge(len(result.assigned if isinstance(result, Called) else result.items))
        if isinstance(result, Record | Entries):
            return replace(result, items={**result.items, **later})
        return replace(result, assigned={**result.assigned, **later})

    def _holds(
        self, under: Branch | None, site: Site, notes: list[str] | None = None
    ) -> tuple[bool | None, Missing | None]:
        """Return whether conditions hold, and what is missing to decide; the conditions of the place itself hold.

        `notes` collects the assumptions behind known conditions.
        """
        if under is None:
            return True, None
        work(3 * (under.depth + (site.under.depth if site.under is not None else 0)))
        given = {(id(one.test), one.truth) for one in branches(site.under)}
        unknown: Missing | None = None
        for one in branches(under):
            test, truth = one.test, one.truth
            if (id(test), truth) in given:
                continue
            if (id(test), not truth) in given:
                return False, None
            found = self.evaluate(test, replace(site, order=one.order, under=None))
            known = self.truth(found)
            if notes is not None and isinstance(found, Value):
                charge(len(found.notes))
                notes += found.notes
            if known is None:
                missing = plain(found)
                unknown = unknown or (missing if isinstance(missing, Missing) else None)
                unknown = unknown or Missing(name=shown(test), line=test.lineno, why="the condition is unknown")
            elif known is not truth:
                return False, None
        return (True, None) if unknown is None else (None, unknown)

    def holds(self, site: Site) -> bool | None:
        """Return whether the branches that lead to a place are taken; None if unknown."""
        return self._holds(site.under, replace(site, under=None))[0]

    def is_left_out(self, site: Site) -> bool:
        """Return whether a place is in a branch that is not taken, or in a function that is defined in one."""
        place: Site | None = site
        while place is not None:
            if self.holds(place) is False:
                return True
            place = place.scope.defined
        return False

    def _parameter(self, scope: Scope, name: str, site: Site) -> Result | None:
        """Return the value of a function's parameter: from the followed call, from its only call, or its default."""
        if site.caller is not None and scope is site.scope:
            return self._given(scope, name, [site.caller])
        key = (id(scope), name)
        if key not in self._parameters:
            self._parameters[key] = None  # prevents endless recursion
            self._parameters[key] = self._given(scope, name, None)
        return self._parameters[key]

    def _given(self, scope: Scope, name: str, calls: list[tuple[ast.Call, Site]] | None) -> Result | None:
        function = scope.node
        assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        spec = function.args
        work(len(spec.posonlyargs) + len(spec.args) + len(spec.kwonlyargs) + 10 * len(function.decorator_list))
        names = [one.arg for one in (*spec.posonlyargs, *spec.args)]
        calls = self._calls_of(scope) if calls is None else calls
        if spec.kwarg is not None and name == spec.kwarg.arg and len(calls) <= 1:
            own = {*names, *(one.arg for one in spec.kwonlyargs)}
            return self._others(calls[0], own) if calls else self._rest_of_command_line(own)
        if name not in names and name not in [one.arg for one in spec.kwonlyargs]:
            return None
        default = defaults_of(spec).get(name)
        given = [self._passed(call, site, names, name) for call, site in calls]
        passed = [one for one in given if one is not None]
        if passed and (len(passed) == len(given) or default is None):
            return passed[0] if len(passed) == 1 else named_as(one_of(passed, None, function), name)
        if name in self.given and not passed:  # fire, typer and click set parameters from the command line
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
            found = self.evaluate(inner_default(default), outer)
            return noted(found, note=f"{name} of {function.name}() has its default (line {function.lineno})")
        owner = scope.parent
        if owner is not None and isinstance(owner.node, ast.ClassDef) and names[:1] == [name]:
            made = [one for one in self.found.named(owner.node.name) if isinstance(one[0].func, ast.Name)]
            if len(made) == 1:  # the only object of its class
                return self.evaluate(*made[0])
        dispatched = self.answer.dispatched(self, function.name) if names[:1] == [name] and not calls else None
        if dispatched is not None:
            return dispatched
        return Missing(name=name, line=function.lineno, why=f"{name} is a parameter of {function.name}()")

    def _rest_of_command_line(self, names: set[str]) -> Entries:
        """Return `**kwargs` of a function that fire or a similar library calls."""
        rest = {key: value for key, value in self.given.items() if key not in names}
        return Entries(
            items={key: Value(value=value, notes=(f"--{key} = {value!r} (--args)",)) for key, value in rest.items()}
        )

    def _others(self, call: tuple[ast.Call, Site], names: set[str]) -> Entries:
        """Return `**kwargs` of a function: the keywords of its call without a parameter of their own."""
        node, site = call
        _, named, unknown = self.arguments(Called(name="", node=node, site=site))
        charge(len(named))
        return Entries(items={key: one for key, one in named.items() if key not in names}, unknown=tuple(unknown))

    def _calls_of(self, scope: Scope) -> list[tuple[ast.Call, Site]]:
        """Return the calls of a function (`train(…)`) or method (`x.train(…)`). `trainer.train()` calls no function."""
        function = scope.node
        assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        owner = scope.parent.node if scope.parent is not None else None
        name, kind = function.name, ast.Attribute if isinstance(owner, ast.ClassDef) else ast.Name
        if isinstance(owner, ast.ClassDef) and name == "__init__":
            name, kind = owner.name, ast.Name
        named = self.found.named(name)
        work(3 * len(named))
        found = [one for one in named if isinstance(one[0].func, kind) and dotted(one[0].func) is not None]
        if kind is ast.Name:  # also `module.train(…)`
            found += [one for one in named if isinstance(one[0].func, ast.Attribute) and _names(one, scope)]
        return found

    def _passed(self, call: ast.Call, site: Site, names: list[str], name: str) -> Result | None:
        work(len(call.keywords))
        for keyword in call.keywords:
            if keyword.arg == name:
                return self.evaluate(keyword.value, site)
            if keyword.arg is None:
                spread = self.evaluate(keyword.value, site)
                if isinstance(spread, Entries | Record) and name in spread.items:
                    return spread.items[name]
        ordered = names[1:] if names[:1] in (["self"], ["cls"]) else names
        place = ordered.index(name) if name in ordered else len(call.args)
        if place < len(call.args) and not isinstance(call.args[place], ast.Starred):
            return self.evaluate(call.args[place], site)
        return None


def _names(call: tuple[ast.Call, Site], function: Scope) -> bool:
    """Return whether a call names a function of another module: `module.train(…)`."""
    name, scope = dotted(call[0].func), call[1].scope
    while scope.parent is not None and name not in scope.functions:
        scope = scope.parent
    return name is not None and scope.functions.get(name) is function
