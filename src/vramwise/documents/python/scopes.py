"""Indexes a module: assignments, imports, functions and classes in order, with their conditions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from vramwise.documents.python.modules import Module, full_name
from vramwise.limits.meter import work

# The return value of a function is bound to this name.
RETURNED = "return"
_ADDS = {"append", "extend"}
WITHOUT = "<without>"
_EXITS = frozenset({"exit", "quit", "sys.exit", "os._exit"})
# Modules are not made known as a whole beyond so many names in a scope.
_MOST_NAMES = 20_000


class Each(ast.expr):
    """The value of a loop variable: one of the items of an expression."""

    def __init__(self, value: ast.expr) -> None:
        super().__init__()
        self.value = value


class Changing(ast.expr):
    """A value that a loop computes from its own earlier value."""

    def __init__(self, value: ast.expr) -> None:
        super().__init__()
        self.value = value


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """A condition: its test, whether it must be true, and the order of the test; inside the branch `outer`."""

    test: ast.expr
    truth: bool
    order: int
    outer: Branch | None
    depth: int


def branches(inner: Branch | None) -> list[Branch]:
    """Return the conditions that lead to a place, from the outermost."""
    found: list[Branch] = []
    while inner is not None:
        found.append(inner)
        inner = inner.outer
    return found[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """An assignment to a name or `name.attribute`. `part`: positions inside an unpacked tuple.

    `order`: its position among all bindings of the file. `under`: the branches that lead to it.
    """

    target: str
    value: ast.expr
    order: int
    under: Branch | None = None
    part: tuple[int, ...] = ()
    # The assumption behind this binding.
    note: str = ""


@dataclass(slots=True)
class Scope:
    """A module, function or class, and what is bound in it."""

    node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    parent: Scope | None = None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    functions: dict[str, Scope] = field(default_factory=dict)
    classes: dict[str, Scope] = field(default_factory=dict)
    # Name → full name of the import: `SFTConfig` → `trl.SFTConfig`.
    imports: dict[str, str] = field(default_factory=dict)
    # Name → the bound attributes of it: `args` → `args.seed`, `args.model.name`.
    members: dict[str, list[str]] = field(default_factory=dict)
    # Where a function is defined, if that is under a condition.
    defined: Site | None = None

    def bind(self, binding: Binding) -> None:
        """Add a binding; bindings are added in order."""
        if binding.target not in self.bindings and "." in binding.target:
            self.members.setdefault(binding.target.partition(".")[0], []).append(binding.target)
        self.bindings.setdefault(binding.target, []).append(binding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The place of an expression: its scope, its order, and the branches that lead to it.

    `caller`: the call that led into the function, if one is followed, and its site.
    """

    scope: Scope
    order: int
    under: Branch | None = None
    caller: tuple[ast.Call, Site] | None = None


@dataclass(slots=True)
class Index:
    """All scopes of a module, and every call in it with its site."""

    module: Scope
    calls: list[tuple[ast.Call, Site]] = field(default_factory=list)
    # Modules beside the script by full name; None while one is read, and for libraries.
    modules: dict[str, Scope | None] = field(default_factory=dict)
    # Which modules are known as a whole: scope, module and name.
    taken: set[tuple[int, int, str]] = field(default_factory=set)
    _order: int = 0
    _named: dict[str, list[tuple[ast.Call, Site]]] = field(default_factory=dict)

    def add(self, call: ast.Call, site: Site) -> None:
        """Add a call."""
        self.calls.append((call, site))
        last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
        if last is not None:
            self._named.setdefault(last, []).append((call, site))

    def named(self, last: str) -> list[tuple[ast.Call, Site]]:
        """Return the calls of a function or method of this name."""
        return self._named.get(last, [])

    def next(self) -> int:
        """Advance and return the order."""
        self._order += 1
        return self._order


def index(tree: ast.Module, beside: Callable[[str, int], Module | None] = lambda _name, _line: None) -> Index:
    """Return the scopes and calls of a module, with those of the modules that `beside` returns for its imports."""
    found = Index(module=Scope(tree))
    _Walk(found, found.module, beside).body(tree.body, None)
    return found


class _Walk:
    """Walks through statements in order."""

    def __init__(
        self, found: Index, scope: Scope, beside: Callable[[str, int], Module | None], package: str = ""
    ) -> None:
        self.found, self.scope, self.beside, self.package = found, scope, beside, package
        self.loops = 0
        # Names that an `except` also binds, with the assumption for those of its `try`.
        self.hoped: dict[str, str] = {}

    def body(self, statements: list[ast.stmt], under: Branch | None) -> None:
        for statement in statements:
            self._statement(statement, under)
            # After `if x: return`, x is false.
            if isinstance(statement, ast.If) and not statement.orelse and _leaves(statement.body):
                under = self._branch(statement.test, False, self.found.next(), under)

    def _branch(self, test: ast.expr, truth: bool, order: int, outer: Branch | None) -> Branch:
        return Branch(test, truth, order, outer, 1 if outer is None else outer.depth + 1)

    def _statement(self, node: ast.stmt, under: Branch | None) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = Scope(node, self.scope)
            if under is not None:
                inner.defined = Site(scope=self.scope, order=self.found.next(), under=under)
            self.scope.functions[node.name] = inner
            for decorator in node.decorator_list:
                self._calls(decorator, under)
            self._inside(inner)
        elif isinstance(node, ast.ClassDef):
            inner = Scope(node, self.scope)
            self.scope.classes[node.name] = inner
            self._inside(inner)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node)
        elif isinstance(node, ast.If):
            self._calls(node.test, under)
            order = self.found.next()
            # If one side stops the script, a run that trains takes the other.
            self.body(node.body, under if _stops(node.orelse) else self._branch(node.test, True, order, under))
            self.body(node.orelse, under if _stops(node.body) else self._branch(node.test, False, order, under))
        else:
            self._plain(node, under)

    def _inside(self, inner: Scope) -> None:
        _Walk(self.found, inner, self.beside, self.package).body(inner.node.body, None)

    def _plain(self, node: ast.stmt, under: Branch | None) -> None:
        for expression in _expressions(node):
            self._calls(expression, under)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value, under)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._bind(node.target, node.value, under)
        elif isinstance(node, ast.AugAssign):
            both = ast.BinOp(left=_loaded(node.target), op=node.op, right=node.value)
            made = Changing(_loaded(node.target)) if self.loops else both
            self._bind(node.target, ast.copy_location(made, node.value), under)
        elif isinstance(node, ast.Return):
            held = node.value or ast.copy_location(ast.Constant(value=None), node)
            self.scope.bind(Binding(target=RETURNED, value=held, order=self.found.next(), under=under))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._changed(node.value, under)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, item.context_expr, under)
            self.body(node.body, under)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            if not isinstance(node, ast.While):
                self._bind(node.target, ast.copy_location(Each(node.iter), node.iter), under)
            self.loops += 1
            self.body(node.body, under)
            self.loops -= 1
            self.body(node.orelse, under)
        elif isinstance(node, ast.Try | ast.TryStar):
            before = self.hoped
            note = f"what the try in line {node.lineno} does is taken to succeed"
            work(len(before))
            self.hoped = {**before, **dict.fromkeys(_bound_otherwise(node), note)}
            self.body(node.body, under)
            self.hoped = before
            self.body(node.orelse, under)
            self.body(node.finalbody, under)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                test = _matches(node.subject, case)
                if test is None:
                    self.body(case.body, under)
                    continue
                order = self.found.next()
                self.body(case.body, self._branch(test, True, order, under))
                under = self._branch(test, False, order, under)

    def _changed(self, call: ast.Call, under: Branch | None) -> None:
        """Rebind the name for calls such as `kwargs.update(…)` or `targets.append(…)`."""
        function = call.func
        if dotted(function) == "setattr" and len(call.args) == 3 and isinstance(call.args[1], ast.Constant):
            attribute = ast.Subscript(value=call.args[0], slice=call.args[1], ctx=ast.Store())
            self._bind(ast.copy_location(attribute, call), call.args[2], under)
        if not isinstance(function, ast.Attribute) or dotted(function.value) is None:
            return
        made: ast.expr | None = None
        if function.attr == "update":
            more = ast.copy_location(ast.Call(_name("dict", call), args=call.args, keywords=call.keywords), call)
            made = ast.BinOp(left=function.value, op=ast.BitOr(), right=more)
        elif function.attr == "setdefault" and len(call.args) == 2:
            unless = ast.copy_location(ast.Dict(keys=[call.args[0]], values=[call.args[1]]), call)
            made = ast.BinOp(left=unless, op=ast.BitOr(), right=function.value)
        elif function.attr in _ADDS and len(call.args) == 1:
            one = ast.copy_location(ast.List(elts=[call.args[0]], ctx=ast.Load()), call)
            more_items = call.args[0] if function.attr == "extend" else one
            made = ast.BinOp(left=function.value, op=ast.Add(), right=more_items)
        elif function.attr == "pop" and call.args:
            made = ast.Call(_name(WITHOUT, call), args=[function.value, call.args[0]], keywords=[])
        if made is not None:
            made = Changing(function.value) if self.loops and function.attr in _ADDS else made
            self._bind(function.value, ast.copy_location(made, call), under)

    def _bind(self, target: ast.expr, value: ast.expr, under: Branch | None, part: tuple[int, ...] = ()) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for place, element in enumerate(target.elts):
                if isinstance(value, ast.Tuple | ast.List) and not part and place < len(value.elts):
                    self._bind(element, value.elts[place], under)
                else:
                    self._bind(element, value, under, (*part, place))
            return
        name = dotted(target)
        if name is not None:
            note = self.hoped.get(name, "")
            order = self.found.next()
            self.scope.bind(Binding(target=name, value=value, order=order, under=under, part=part, note=note))

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
        for alias in node.names:
            name = alias.asname or (alias.name if module else alias.name.partition(".")[0])
            self.scope.imports[name] = f"{module}{alias.name}" if alias.asname or module else name
        if isinstance(node, ast.ImportFrom):
            held = self._module(full_name(node, self.package), node.lineno)
            if held is not None:
                for alias in node.names:
                    self._take(held, alias.name, alias.asname or alias.name)
        for alias in node.names:
            whole = full_name(node, self.package) if isinstance(node, ast.ImportFrom) else ""
            read = self._module(f"{whole}.{alias.name}" if whole else alias.name, node.lineno)
            if read is not None and read is not self.scope:
                self._take_all(read, alias.asname or alias.name)

    def _module(self, name: str, line: int) -> Scope | None:
        """Return the scope of a module beside the script, read once; None for a library."""
        if name and name not in self.found.modules:
            self.found.modules[name] = None
            read = self.beside(name, line)
            if read is not None:
                scope = Scope(read.tree)
                _Walk(self.found, scope, self.beside, read.package).body(read.tree.body, None)
                self.found.modules[name] = scope
        return self.found.modules.get(name)

    def _take(self, module: Scope, name: str, own: str) -> None:
        """Make a function, class, constant or import of another module known under its own name."""
        if name in module.functions:
            self.scope.functions[own] = module.functions[name]
        elif name in module.classes:
            self.scope.classes[own] = module.classes[name]
        elif name in module.imports:
            self.scope.imports[own] = module.imports[name]
        elif name in module.bindings and isinstance(value := module.bindings[name][-1].value, ast.Constant):
            self.scope.bind(Binding(target=own, value=value, order=self.found.next()))

    def _take_all(self, module: Scope, own: str) -> None:
        """Make what a module defines known as `module.name`, and its classes under their own names too."""
        size = len(self.scope.functions) + len(self.scope.bindings)
        if (id(self.scope), id(module), own) in self.found.taken or size > _MOST_NAMES:
            return
        self.found.taken.add((id(self.scope), id(module), own))
        self.scope.functions |= {f"{own}.{name}": one for name, one in module.functions.items() if "." not in name}
        self.scope.classes = {**module.classes, **self.scope.classes}
        for name, bindings in module.bindings.items():
            if isinstance(bindings[-1].value, ast.Constant) and "." not in name:
                target = f"{own}.{name}"
                self.scope.bind(Binding(target=target, value=bindings[-1].value, order=self.found.next()))

    def _calls(self, expression: ast.expr, under: Branch | None) -> None:
        order = self.found.next()
        for node in nodes_of(expression):
            if isinstance(node, ast.Call):
                self.found.add(node, Site(scope=self.scope, order=order, under=under))
            elif isinstance(node, ast.NamedExpr):
                self._bind(node.target, node.value, under)


def nodes_of(expression: ast.AST) -> list[ast.AST]:
    """Return an expression and all in it, in the order of `ast.walk` and in half its time."""
    found = [expression]
    for node in found:
        found += children(node)
    return found


def children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly below a node; single ones that have no parts, such as `Load`, are left out."""
    found: list[ast.AST] = []
    for name in node._fields:
        held = getattr(node, name, None)
        if isinstance(held, list):
            found += [one for one in held if isinstance(one, ast.AST)]
        elif isinstance(held, ast.AST) and held._fields:
            found.append(held)
    return found


def _bound_otherwise(node: ast.Try | ast.TryStar) -> list[str]:
    """Return the names that the handlers of a `try` assign."""
    assigned = [one for handler in node.handlers for one in handler.body if isinstance(one, ast.Assign)]
    targets = [part for one in assigned for target in one.targets for part in getattr(target, "elts", [target])]
    return [name for name in map(dotted, targets) if name is not None]


def _matches(subject: ast.expr, case: ast.match_case) -> ast.expr | None:
    """Return a case as a condition; None for the case that always matches. Structural patterns are unknown."""
    pattern = case.pattern
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None and case.guard is None:
        return None
    options = pattern.patterns if isinstance(pattern, ast.MatchOr) else [pattern]
    values = [one.value for one in options if isinstance(one, ast.MatchValue)]
    if len(values) != len(options) or case.guard is not None:
        return ast.copy_location(Changing(subject), subject)
    listed = ast.copy_location(ast.Tuple(elts=values, ctx=ast.Load()), subject)
    return ast.copy_location(ast.Compare(left=subject, ops=[ast.In()], comparators=[listed]), subject)


def _expressions(node: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions of a statement itself, without those of nested statements."""
    for _, value in ast.iter_fields(node):
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.expr):
                yield one
            elif isinstance(one, ast.withitem):
                yield one.context_expr


def _name(name: str, beside: ast.expr) -> ast.Name:
    return ast.copy_location(ast.Name(id=name, ctx=ast.Load()), beside)


def _leaves(statements: list[ast.stmt]) -> bool:
    return bool(statements) and isinstance(statements[-1], ast.Return | ast.Continue | ast.Break)


def _stops(statements: list[ast.stmt]) -> bool:
    """Return whether statements end the whole script by raising or exiting."""
    last = statements[-1] if statements else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return dotted(last.value.func) in _EXITS
    return isinstance(last, ast.Raise)


def _loaded(target: ast.expr) -> ast.expr:
    """Return a target as an expression that reads it."""
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(id=target.id, ctx=ast.Load()), target)
    return target


def dotted(node: ast.expr) -> str | None:
    """Return `a.b.c` as text, and `a["b"]` as `a.b`; None for anything else."""
    parts: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and type(node.slice.value) is str:
            parts.append(node.slice.value)
            node = node.value
        elif isinstance(node, ast.Name):
            return ".".join([node.id, *reversed(parts)])
        else:
            return None
