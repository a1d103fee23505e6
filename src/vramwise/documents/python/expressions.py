"""Evaluates compound expressions: arithmetic, comparisons, texts, lists and mappings."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from vramwise.documents.python.combine import LARGEST_NUMBER, MOST_ITEMS, joined, noted, one_of, shown
from vramwise.documents.python.growth import OPERATORS, as_text, is_in, is_not_in, size_of
from vramwise.documents.python.names import Names
from vramwise.documents.python.results import Called, Entries, Items, Missing, Record, Result, Value, merged, plain
from vramwise.documents.python.scopes import Changing, Each, Site
from vramwise.limits.meter import charge, work

_MAKE_OBJECTS = frozenset({"from_pretrained", "get_peft_model"})
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
    ast.In: is_in,
    ast.NotIn: is_not_in,
}
# Names of data sets and their parts.
_DATA = re.compile(r"data|eval|val|test|train|split|dev", re.ASCII | re.IGNORECASE)


class Expressions(Names):
    """Evaluates expressions that are computed from parts."""

    __slots__ = ()

    def value(self, node: ast.expr, site: Site) -> Value | Missing:
        """Return an expression at its place as a plain value."""
        return plain(self.evaluate(node, site))

    def items(self, node: ast.List | ast.Tuple | ast.Set, site: Site) -> Result:
        """Evaluate a list, tuple or set."""
        if len(node.elts) > MOST_ITEMS:
            return Missing(name="a list", line=node.lineno, why=f"a list of {len(node.elts)} items is not read")
        items: list[Result] = []
        for one in node.elts:
            found = self.evaluate(one.value if isinstance(one, ast.Starred) else one, site)
            if isinstance(one, ast.Starred):
                if not isinstance(found, Items):
                    return Missing(name=shown(one), line=one.lineno, why="items come from another list")
                charge(len(found.items))
                items += found.items
            else:
                items.append(found)
        return Items(items=tuple(items), node=node)

    def computed(self, node: ast.expr, site: Site) -> Result:
        """Evaluate an expression computed from parts; Missing for other kinds of expressions."""
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
        if isinstance(node, ast.DictComp):
            return self._selected(node, site)
        if isinstance(node, Each):
            held = self.evaluate(node.value, site)
            sides = list(held.items) if isinstance(held, Items) else []
            return sides[0] if len(sides) == 1 else one_of(sides, None, node.value)
        if isinstance(node, Changing):
            return Missing(name=shown(node.value), line=node.lineno, why=f"{shown(node.value)} changes in a loop")
        if isinstance(node, ast.JoinedStr):
            return self._text(node, site)
        if isinstance(node, ast.NamedExpr):
            return self.evaluate(node.value, site)
        return Missing(name=shown(node), line=node.lineno, why="it is computed at run time")

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
        """Evaluate a comparison; `a < b < c` is `a < b and b < c`."""
        last: Result = Value(value=True)
        left = node.left
        rows = self._has_rows(node, site)
        if rows is not None:
            return rows
        for operation, right in zip(node.ops, node.comparators, strict=True):
            last = self._combined(node, [left, right], site, _COMPARISONS.get(type(operation)))
            if not isinstance(last, Value) or not last.value:
                return last
            left = right
        return last

    def _has_rows(self, node: ast.Compare, site: Site) -> Value | None:
        """Return true for `len(val_data) > 0` and its like, if the data is not known; None for other comparisons."""
        right = node.comparators[0]
        if len(node.ops) > 1 or not isinstance(node.ops[0], ast.Gt | ast.NotEq) or not isinstance(right, ast.Constant):
            return None
        held = self.evaluate(node.left, site) if right.value == 0 else None
        if not isinstance(held, Missing) or not _DATA.search(held.counted):
            return None
        return Value(value=True, notes=(f"{held.counted} is taken to have rows (line {node.lineno})",))

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, site: Site) -> Result:
        """Evaluate one loop over known items without conditions: `[f"{one}_proj" for one in "qkv"]`."""
        loop = node.generators[0]
        held = self.evaluate(loop.iter, site) if len(node.generators) == 1 and not loop.ifs else None
        if isinstance(held, Value) and isinstance(held.value, str | list | tuple):
            charge(MOST_ITEMS)
            held = Items(items=tuple(Value(value=one, notes=held.notes) for one in held.value[: MOST_ITEMS + 1]))
        if not isinstance(held, Items) or not isinstance(loop.target, ast.Name) or len(held.items) > MOST_ITEMS:
            return Missing(name=shown(node), line=node.lineno, why="it is computed while the script runs")
        before = self._local
        made: list[Result] = []
        try:
            for one in held.items:
                work(len(before))
                self._local = {**before, loop.target.id: one}
                made.append(self.evaluate(node.elt, site))
        finally:
            self._local = before
        return Items(items=tuple(made))

    def _selected(self, node: ast.DictComp, site: Site) -> Result:
        """Evaluate `{k: v for k, v in known.items() if …}`, assuming that the condition keeps everything."""
        loop = node.generators[0]
        names = [one.id for one in getattr(loop.target, "elts", []) if isinstance(one, ast.Name)]
        kept = (
            [node.key.id, node.value.id] if isinstance(node.key, ast.Name) and isinstance(node.value, ast.Name) else []
        )
        items = isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Attribute) and loop.iter.func.attr
        held = None
        if isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Attribute) and items == "items":
            held = self.evaluate(loop.iter.func.value, site)
        if not isinstance(held, Entries) or len(node.generators) > 1 or names != kept or len(names) != 2:
            return Missing(name=shown(node), line=node.lineno, why="it is computed while the script runs")
        charge(len(held.items))
        note = f"nothing of it is taken to be left out in line {node.lineno}" if loop.ifs else ""
        return replace(held, items={key: noted(one, note=note) for key, one in held.items.items()}, node=None)

    def _combined(
        self, node: ast.expr, parts: list[ast.expr], site: Site, combine: Callable[[Any, Any], Any] | None
    ) -> Result:
        found = [self.evaluate(one, site) for one in parts]
        values = [plain(one) for one in found]
        lacking = next((one for one in values if isinstance(one, Missing)), None)
        if combine is None or len(values) != 2:
            return Missing(name=shown(node), line=node.lineno, why="it is computed at run time")
        both = joined(found[0], found[1], combine)
        if both is not None:
            return both
        if lacking is not None:
            opaque = [one for one in found if isinstance(one, Called | Record) and self.truth(one)]
            none = [one for one in values if isinstance(one, Value) and one.value is None]
            if opaque and none and combine in (operator.is_, operator.is_not, operator.eq, operator.ne):
                return Value(value=combine in (operator.is_not, operator.ne))
            return replace(lacking, either=())  # those values belong to a part, not to the result
        left, right = [one.value for one in values if isinstance(one, Value)]
        if any(type(one) is int and abs(one) > LARGEST_NUMBER for one in (left, right)):
            return Missing(name=shown(node), line=node.lineno, why="its result would be too large")
        charge(size_of(OPERATORS[combine], (left, right)))
        try:
            result = combine(left, right)
        except Exception:
            return Missing(name=shown(node), line=node.lineno, why="it cannot be computed from known values")
        return Value(value=result, notes=merged(*(one.notes for one in values if isinstance(one, Value))))

    def _boolean(self, node: ast.BoolOp, site: Site) -> Result:
        notes: list[tuple[str, ...]] = []
        last: Result = Value(value=None)
        stops = isinstance(node.op, ast.Or)
        for one in node.values:
            last = self.evaluate(one, site)
            if stops and isinstance(last, Missing) and last.environment and one is not node.values[-1]:
                notes.append((f"{last.name} is not set (line {last.line})",))
                continue
            truth = self.truth(last)
            if truth is None:
                return last if isinstance(last, Missing) else plain(last)
            notes += [last.notes] if isinstance(last, Value) else []
            if truth is stops:
                break
        return replace(last, notes=merged(*notes)) if isinstance(last, Value) else last

    def truth(self, result: Result) -> bool | None:
        """Return whether a result counts as true; None if unknown. Objects do; results of functions are unknown."""
        if isinstance(result, Called):
            return True if result.last[:1].isupper() or result.last in _MAKE_OBJECTS else None
        if isinstance(result, Record):
            return None if result.open else True
        found = plain(result)
        return None if isinstance(found, Missing) else bool(found.value)

    def _text(self, node: ast.JoinedStr, site: Site) -> Result:
        parts: list[str] = []
        notes: list[tuple[str, ...]] = []
        for one in node.values:
            inner = one.value if isinstance(one, ast.FormattedValue) else one
            found = self.value(inner, site)
            if isinstance(found, Missing):
                return replace(found, either=())
            charge(2 * as_text(found.value))  # once alone, and once joined
            parts.append(str(found.value))
            notes.append(found.notes)
        return Value(value="".join(parts), notes=merged(*notes))

    def mapping(self, node: ast.Dict, site: Site) -> Result:
        """Evaluate a mapping, with `**` expanded."""
        if len(node.values) > MOST_ITEMS:
            return Missing(name="a mapping", line=node.lineno, why=f"a mapping of {len(node.values)} is not read")
        items: dict[str, Result] = {}
        unknown: list[Missing] = []
        for key, held in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = self.evaluate(held, site)
                charge(len(inner.items) if isinstance(inner, Entries | Record) else 0)
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

    def either(self, node: ast.IfExp, site: Site) -> Result:
        """Evaluate `a if test else b`: one side, or what both agree on if the test is unknown."""
        test = self.evaluate(node.test, site)
        truth = self.truth(test)
        if truth is None:
            sides = [self.evaluate(one, site) for one in (node.body, node.orelse)]
            return one_of(sides, plain(test), node)
        chosen = self.evaluate(node.body if truth else node.orelse, site)
        return noted(chosen, test)
