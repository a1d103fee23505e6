"""Dataclasses of arguments as data: every field's type and default, read from source with `ast`; nothing is imported.

Types come out in the grammar of `vramwise.trainers.value_types`. Trainers that parse their files with transformers'
HfArgumentParser share this: `fields_of("TrainingArguments", modules)` for any dataclass among some modules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

# [type] where the default is null, else [type, default]: short, one line a key
Facts = dict[str, list[Any]]
_PLAIN = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "dict": "dict",
    "Any": "any",
    "list": "list[any]",
}
_PLAIN |= {"Dict": "dict", "List": "list[any]", "PathLike": "str"}


class Modules:
    """Classes and constants of some source files, by name."""

    def __init__(self, sources: Iterable[str]) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.constants: dict[str, ast.expr] = {}
        for source in sources:
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.ClassDef):
                    self.classes[node.name] = node
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    # the last one counts: defaults that depend on torch's version end with the newest
                    self.constants[node.targets[0].id] = node.value

    def choices(self, name: str) -> list[str] | None:
        """The values of an enumeration of texts; None for any other class."""
        found = self.classes.get(name)
        if found is None:
            return None
        values = [node.value for node in found.body if isinstance(node, ast.Assign)]
        texts = [one.value for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        return texts if texts and len(texts) == len(values) else None


def fields_of(name: str, modules: Modules) -> Facts:
    """Every argument of a dataclass, those of its bases first; a subclass may give a field another default."""
    found = modules.classes[name]
    facts: Facts = {}
    for base in found.bases:
        if isinstance(base, ast.Name) and base.id in modules.classes:
            facts |= fields_of(base.id, modules)
    for field in _annotated(found):
        facts[field.target.id] = _facts(field, modules)  # type: ignore[union-attr]
    return facts


def _annotated(found: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    for node in found.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            written = ast.unparse(node.annotation)
            if "ClassVar" not in written and "init=False" not in ast.unparse(node).replace(" ", ""):
                yield node


def _facts(field: ast.AnnAssign, modules: Modules) -> list[Any]:
    default, choices = _default(field.value, modules)
    written = _type(field.annotation, modules)
    if choices:
        optional = written.endswith("?") or default is None
        written = f"one_of({','.join(choices)}){'?' if optional else ''}"
    elif default is None and field.value is not None and not written.endswith("?"):
        written += "?"
    return [written] if default is None else [written, default]


def _default(value: ast.expr | None, modules: Modules) -> tuple[Any, list[str]]:
    """The default of a field, and the choices that its metadata names."""
    if not (isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field")):
        return _literal(value, modules), []
    words = {word.arg: word.value for word in value.keywords}
    default = _literal(words.get("default"), modules)
    if "default_factory" in words:
        default = {"list": [], "dict": {}}.get(ast.unparse(words["default_factory"]))
    return default, _choices(words.get("metadata"))


def _choices(metadata: ast.expr | None) -> list[str]:
    if not isinstance(metadata, ast.Dict):
        return []
    for key, value in zip(metadata.keys, metadata.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "choices":
            try:
                return [str(one) for one in ast.literal_eval(value)]
            except ValueError:  # computed elsewhere
                return []
    return []


def _literal(value: ast.expr | None, modules: Modules) -> Any:
    if value is None:
        return None
    if isinstance(value, ast.Name) and value.id in modules.constants:
        return _literal(modules.constants[value.id], modules)
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):  # an enumeration's member
        return _member(modules, value.value.id, value.attr)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):  # 768 * 768
        sides = _literal(value.left, modules), _literal(value.right, modules)
        return sides[0] * sides[1] if None not in sides else None
    try:
        return ast.literal_eval(value)
    except ValueError:
        return None


def _member(modules: Modules, name: str, member: str) -> Any:
    for node in getattr(modules.classes.get(name), "body", ()):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == member:
            return ast.literal_eval(node.value)
    return None


def _type(annotation: ast.expr, modules: Modules) -> str:
    """The type in the grammar, null as `?` at the end."""
    alternatives = [one for part in _alternatives(annotation) for one in _one(part, modules)]
    optional = "None" in alternatives
    kept = list(dict.fromkeys(one for one in alternatives if one != "None"))
    if any(one.startswith("one_of") for one in kept):
        kept = [one for one in kept if one != "str"]  # `IntervalStrategy | str` takes the enumeration's values alone
    return "|".join(kept or ["any"]) + ("?" if optional else "")


def _alternatives(annotation: ast.expr) -> Iterator[ast.expr]:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        yield from _alternatives(annotation.left)
        yield from _alternatives(annotation.right)
    elif isinstance(annotation, ast.Subscript) and _name(annotation.value) in ("Union", "Optional"):
        inner = annotation.slice
        for one in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
            yield from _alternatives(one)
        if _name(annotation.value) == "Optional":
            yield ast.Constant(value=None)
    else:
        yield annotation


def _one(part: ast.expr, modules: Modules) -> Iterator[str]:
    if isinstance(part, ast.Constant) and part.value is None:
        yield "None"
    elif isinstance(part, ast.Subscript):
        yield from _subscript(part, modules)
    else:
        name = _name(part)
        choices = modules.choices(name)
        yield f"one_of({','.join(choices)})" if choices else _PLAIN.get(name, "any")


def _subscript(part: ast.Subscript, modules: Modules) -> Iterator[str]:
    name = _name(part.value)
    if name == "Literal":
        values = [_literal(one, modules) for one in getattr(part.slice, "elts", [part.slice])]
        texts = [one for one in values if isinstance(one, str)]
        if texts:
            yield f"one_of({','.join(texts)})"
        yield from {"bool" for one in values if isinstance(one, bool)}
        yield from sorted({"int" for one in values if type(one) is int})
    elif name in ("list", "List"):
        held = _type(part.slice, modules)
        yield f"list[{held}]" if held in ("str", "int", "float") else "list[any]"
    else:
        yield "dict" if name in ("dict", "Dict") else "any"


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def signature_of(name: str, modules: Modules) -> Facts:
    """The parameters of a class's constructor, with what a decorator still takes under an old name; `**` for any."""
    for node in modules.classes[name].body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            facts = _parameters(node.args, modules)
            for call in (one for one in node.decorator_list if isinstance(one, ast.Call)):
                if "deprecate_kwarg" in ast.unparse(call.func) and isinstance(call.args[0], ast.Constant):
                    facts.setdefault(str(call.args[0].value), ["any?"])
            return facts
    bases = [_name(base) for base in modules.classes[name].bases]
    return next((signature_of(base, modules) for base in bases if base in modules.classes), {"**": ["any?"]})


def _parameters(arguments: ast.arguments, modules: Modules) -> Facts:
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [*([None] * (len(plain) - len(arguments.defaults))), *arguments.defaults, *arguments.kw_defaults]
    facts: Facts = {}
    for one, default in zip([*plain, *arguments.kwonlyargs], defaults, strict=True):
        if one.arg != "self":
            written = "any?" if one.annotation is None else _type(one.annotation, modules)
            value = _literal(default, modules)
            facts[one.arg] = [written] if value is None else [written, value]
    return facts | ({"**": ["any?"]} if arguments.kwarg else {})
