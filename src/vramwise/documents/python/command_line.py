"""What the command line gives a script: parsed flags, filled dataclasses, Hydra's config, and classes of the file."""

from __future__ import annotations

import ast
import shlex
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vramwise.documents.document import parse_value
from vramwise.documents.python.classes import all_fields, class_of, lineage
from vramwise.documents.python.combine import noted, shown
from vramwise.documents.python.evaluate import Evaluator
from vramwise.documents.python.flags import Flag, parsed
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
    said,
)
from vramwise.documents.python.scopes import Scope, Site, dotted
from vramwise.errors import ConfigError
from vramwise.limits.meter import charge, measure, split_units, work


@dataclass(slots=True, kw_only=True)
class CommandLine:
    """`given`: values of the command line by flag. `words`: the words as written.

    `load`: returns the content of a YAML or JSON file beside the script, or None if it cannot be read.
    """

    flags: Mapping[str, Flag]
    given: Mapping[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    load: Callable[[str], Mapping[str, Any] | None] = lambda _: None

    def configured(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Result | None:
        """Return the YAML file that `@hydra.main(config_path=…, config_name=…)` reads, or None.

        Its `defaults:` are not followed.
        """
        for decorator in function.decorator_list:
            if not isinstance(decorator, ast.Call) or dotted(decorator.func) not in ("hydra.main", "main"):
                continue
            constants = [one for one in decorator.keywords if isinstance(one.value, ast.Constant)]
            named = {one.arg: str(ast.literal_eval(one.value) or "") for one in constants}
            if "config_name" not in named:
                continue
            file = f"{named['config_name'].removesuffix('.yaml')}.yaml"
            path = f"{named['config_path']}/{file}" if named.get("config_path") else file
            content = self.load(path)
            if content is None:
                return Missing(name=file, line=decorator.lineno, why=f"{path} is not available here")
            given = {key: Value(value=value, notes=(f"{key}={value!r} (--args)",)) for key, value in self.given.items()}
            made = as_entries(content, f"as {path} says")
            return Record(name=file, items={**made.items, **given}) if isinstance(made, Entries) else made
        return None

    def dispatched(self, evaluator: Evaluator, name: str) -> Result | None:
        """Return the parsed flags for a function that `set_defaults(func=…)` of a subcommand names, or None."""
        for call, _ in evaluator.found.named("set_defaults"):
            work(len(call.keywords))
            if isinstance(call.func, ast.Attribute) and any(
                isinstance(one.value, ast.Name) and one.value.id == name for one in call.keywords
            ):
                return self.parsed_flags(evaluator)
        return None

    def parsed_flags(self, evaluator: Evaluator, called: Called | None = None) -> Record:
        """Return the result of `parse_args()`: command-line values, else defaults; values of a list in the call win."""
        items: dict[str, Result] = {}
        work(len(self.flags))
        for name, flag in self.flags.items():
            items[name] = self._flag(evaluator, flag)
        listed = evaluator.value(called.node.args[0], called.site) if called is not None and called.node.args else None
        if isinstance(listed, Value) and isinstance(listed.value, list):
            charge(split_units(as_text(listed.value)))
            written = parsed(shlex.join(str(one) for one in listed.value), self.flags)
            return Record(name="args", items={**items, **{name: Value(value=one) for name, one in written.items()}})
        for name, value in self.given.items():
            items.setdefault(name, Value(value=value))
        return Record(name="args", items=items)

    def _flag(self, evaluator: Evaluator, flag: Flag) -> Result:
        word = max(flag.words, key=lambda one: one.startswith("--"))
        if flag.name in self.given:
            note = f"{word} = {self.given[flag.name]!r} (--args)"
            return Value(value=self.given[flag.name], notes=(note,), word=word)
        if flag.name in evaluator.said:
            return Value(value=evaluator.said[flag.name], notes=(f"{word} = {evaluator.said[flag.name]!r} (--set)",))
        if flag.clashes:
            return Missing(name=flag.name, line=flag.line, why=f"every subcommand has its own default of {word}")
        if flag.required and flag.default is None:
            return Missing(name=flag.name, line=flag.line, why=f"{word} is given on the command line")
        if flag.default is None:
            return Value(value=None, notes=(f"{word} is not given (line {flag.line})",), word=word)
        held = (
            evaluator.value(flag.default, flag.site) if not _is_made(flag.default) else Value(value=_made(flag.default))
        )
        if isinstance(held, Missing):
            return held
        value = _typed(held.value, flag.kind)
        shown_value = said(value)
        charge(len(held.notes) + len(shown_value))
        note = f"{word} has its default, {shown_value} (line {flag.line})"
        return Value(value=value, notes=(*held.notes, note), word=word)

    def filled_classes(self, evaluator: Evaluator, called: Called) -> Result | None:
        """Return the dataclasses that HfArgumentParser or TrlParser fills from the command line, or None."""
        parser = (
            evaluator.evaluate(called.node.func.value, called.site)
            if isinstance(called.node.func, ast.Attribute)
            else None
        )
        if not isinstance(parser, Called) or not parser.last.endswith("Parser") or not parser.node.args:
            return None
        listed = parser.node.args[0]
        held = evaluator.evaluate(listed, parser.site)
        if isinstance(held, Items) and held.node is not None:
            listed = held.node
        nodes = listed.elts if isinstance(listed, ast.Tuple | ast.List) else [listed]
        from_file = self._from_file(evaluator, called)
        given = {
            key: Value(value=value, notes=(f"--{key} = {value!r} (--args)",), word=f"--{key}")
            for key, value in self.given.items()
        }
        classes: list[Result] = [self._class(evaluator, node, parser.site, from_file, given) for node in nodes]
        more = any(one.arg == "return_remaining_strings" for one in called.node.keywords)
        return Items(items=(*classes, Items(items=())) if more else tuple(classes))

    def _from_file(self, evaluator: Evaluator, called: Called) -> dict[str, Result]:
        """Return the values of `--config file.yaml` (TrlParser), or of the file or mapping that the call names."""
        name: Any = self.given.get("config") if called.last == "parse_args_and_config" else None
        if called.last in ("parse_yaml_file", "parse_json_file", "parse_dict") and called.node.args:
            held = evaluator.evaluate(called.node.args[0], called.site)
            if isinstance(held, Entries):
                return dict(held.items)
            found = plain(held)
            name = found.value if isinstance(found, Value) else None
        content = self.load(name) if isinstance(name, str) else None
        made = as_entries(content, f"as {name} says") if content is not None else None
        return dict(made.items) if isinstance(made, Entries) else {}

    def _class(
        self,
        evaluator: Evaluator,
        node: ast.expr,
        site: Site,
        from_file: Mapping[str, Result],
        given: Mapping[str, Result],
    ) -> Result:
        both = {**from_file, **given}
        name = node.id if isinstance(node, ast.Name) else shown(node)
        inner = class_of(name, site.scope)
        if inner is None:
            call = ast.copy_location(ast.Call(func=node, args=[], keywords=[]), node)
            full = evaluator.called(call, site)
            return Called(name=full, node=call, site=site, assigned=both, notes=(FROM_COMMAND_LINE,))
        lines = {one: written.line for one, written in all_fields(inner).items()}
        fields = {
            one: noted(held, note="" if one in evaluator.said else f"--{one} has its default (line {lines[one]})")
            for one, held in class_fields(evaluator, inner).items()
        }
        fields |= _begun(from_file, given, fields) | {key: value for key, value in both.items() if key in fields}
        _, base = lineage(inner)
        if base is None:
            return Record(name=name, items=fields)
        call = ast.copy_location(ast.Call(func=base, args=[], keywords=[]), node)
        name = evaluator.called(call, site)
        return Called(name=name, node=call, site=site, assigned={**fields, **both}, notes=(FROM_COMMAND_LINE,))


def _begun(
    from_file: Mapping[str, Result], given: Mapping[str, Result], fields: Mapping[str, Result]
) -> dict[str, Result]:
    """Return the fields that a flag of the command line begins: argparse takes one if no other begins so.

    Keys of a file are not shortened so. One that shortens the last word of a field is taken for it all the same, with a
    note: what is meant matters more than a run that stops.
    """
    work(len(from_file) + len(given) + len(fields))
    names = sorted(fields)
    found: dict[str, Result] = {}
    for key in sorted({*from_file, *given} - fields.keys()):
        first = bisect_left(names, key)
        begun = [name for name in names[first : first + 2] if name.startswith(key)]
        if len(begun) != 1 or begun[0] in given or begun[0] in from_file:
            continue
        if key in given:
            found[begun[0]] = given[key]
        elif "_" in key and key.rpartition("_")[0] == begun[0].rpartition("_")[0]:
            note = f"{key} is no field, which parsers ignore or refuse: it is taken for {begun[0]}"
            found[begun[0]] = noted(from_file[key], note=note)
    return found


def class_fields(evaluator: Evaluator, scope: Scope) -> dict[str, Result]:
    """Return the fields of a class of the file, with their defaults."""
    items: dict[str, Result] = {}
    fields = all_fields(scope)
    work(len(fields))
    for name, one in fields.items():
        if name in evaluator.said:
            items[name] = Value(value=evaluator.said[name], notes=(f"{name} = {evaluator.said[name]!r} (--set)",))
        elif one.default is None:
            items[name] = Missing(name=name, line=one.line, why=f"{name} is a field without a default")
        else:
            items[name] = evaluator.evaluate(one.default, Site(scope=one.scope, order=2**31))
    return items


def as_entries(content: Any, note: str) -> Result:
    """Return the content of a file as a result, every value with a note."""
    charge(2 * measure(content))
    return _entries(content, note)


def _entries(content: Any, note: str) -> Result:
    if isinstance(content, Mapping):
        return Entries(items={str(key): _entries(held, note) for key, held in content.items()})
    if isinstance(content, list):
        return Items(items=tuple(_entries(held, note) for held in content))
    return Value(value=content, notes=(note,))


def _typed(value: Any, kind: str) -> Any:
    convert = {"int": int, "float": float}.get(kind)
    try:
        return convert(value) if convert is not None and value is not None else value
    except (TypeError, ValueError, OverflowError):
        return value


def _is_made(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not hasattr(node, "lineno")


def _made(node: ast.expr) -> Any:
    assert isinstance(node, ast.Constant)
    return node.value


def written_here(text: str, line: int) -> Result:
    """Return YAML or JSON that is written in the source itself, parsed."""
    try:
        content = parse_value(text)
    except ConfigError:
        return Missing(name="a text", line=line, why="a text is loaded that is no YAML")
    return as_entries(content, "as the text in the source says")
